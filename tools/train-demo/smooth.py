"""What static scales, SmoothQuant [Xiao 2023] and outlier channels in bf16 [Dettmers 2022] bring to W8A8 over scales that are measured as
activations come: errors of each layer's result, and of the latents, by an emulation in PyTorch on the demo model.

python smooth.py MODEL [--steps 8] [--prompts 4] [--planted N] [--size 256] [--rows 0,1]
MODEL: a diffusers folder. Scales are made of the inputs of some prompts and errors measured with others. --planted N: N channels behind
each LayerNorm are 100 times as large and the weights that read them as much smaller, which changes no float result but by rounding.
Writes a Markdown table.
"""
import argparse
import math
import types

import torch
import torch.nn.functional as F

from captions import EN
from prompts import GROUPS, test_prompts
from sample import Painter

ALPHAS = [0.25 + 0.05 * k for k in range(14)]
TIMES = 3  # calls of each prompt whose inputs are kept


def channels_last(x, layer):
    """Channels of the input behind all else."""
    return x.movedim(1, -1) if isinstance(layer, torch.nn.Conv2d) else x


def by_channel(v, layer, of):
    """A vector by input channel in the shape that spreads over an input ("x") or the weight ("w")."""
    if not isinstance(layer, torch.nn.Conv2d):
        return v
    return v[None, :, None, None]


def weight_most(layer):
    """(C,) largest |w| of each input channel."""
    w = layer.weight.abs()
    return w.amax((0, 2, 3)) if w.ndim == 4 else w.amax(0)


def product(layer, x, w):
    if isinstance(layer, torch.nn.Conv2d):
        return F.conv2d(x, w, None, layer.stride, layer.padding, layer.dilation, layer.groups)
    return F.linear(x, w)


def whole(x, scale):
    return (x / scale).round().clamp(-127, 127)


class Way:
    """How a layer is computed: factors by channel, a fixed scale of what comes in, channels that stay in bf16."""

    def __init__(self, layer, factors=None, scale=None, outliers=None):
        w = layer.weight
        self.layer, self.factors, self.scale, self.outliers = layer, factors, scale, outliers
        if factors is not None:
            w = w * by_channel(factors, layer, 'w')
        if outliers is not None and len(outliers):
            self.kept = w[:, outliers].bfloat16().float()
            w = w.clone()
            w[:, outliers] = 0
        self.w_scale = (w.flatten(1).abs().amax(1) / 127).clamp_min(1e-30).reshape(-1, *[1] * (w.ndim - 1))
        self.w = whole(w, self.w_scale)
        self.w_scale = self.w_scale.reshape(-1)

    def __call__(self, x):
        layer, conv = self.layer, isinstance(self.layer, torch.nn.Conv2d)
        more = 0
        if self.factors is not None:
            x = x / by_channel(self.factors, layer, 'x')
        if self.outliers is not None and len(self.outliers):
            dim = 1 if conv else -1
            more = product(layer, x.index_select(dim, self.outliers).bfloat16().float(), self.kept)
            x = x.clone().index_fill_(dim, self.outliers, 0)
        scale = self.scale
        if scale is None:
            scale = (x.abs().amax((1, 2, 3), True) if conv else x.abs().amax(-1, True)).clamp_min(1e-30) / 127
        out = product(layer, whole(x, scale), self.w) * scale
        out = out * by_channel(self.w_scale, layer, 'x')
        return out + more


class Study:
    def __init__(self, painter, prompts, args):
        self.p, self.args = painter, args
        self.layers = {n: m for n, m in painter.unet.named_modules() if isinstance(m, (torch.nn.Linear, torch.nn.Conv2d))}
        half = len(prompts) // 2
        self.calibration, self.evaluation = prompts[:half], prompts[half:]

    @torch.no_grad()
    def latents(self, prompts, first_seed):
        """The sampler's latents, as Painter has them."""
        p, s = self.p, self.p.scheduler
        s.set_timesteps(self.args.steps)
        chinese = [language != EN for _, language, _ in prompts]
        text = torch.cat([torch.stack([p._states('', c) for c in chinese]),
                          torch.stack([p._states(q[0], c) for q, c in zip(prompts, chinese)])])
        x = torch.stack([torch.randn(4, self.args.size // 8, self.args.size // 8, generator=torch.Generator().manual_seed(first_seed + k))
                         for k in range(len(prompts))])
        for self.step, t in enumerate(s.timesteps):
            without, with_text = p.unet(torch.cat([x, x]), t, text).sample.chunk(2)
            x = s.step(without + 4. * (with_text - without), t, x).prev_sample
        return x

    def is_behind_layer_norm(self, name):
        return name.endswith(('attn1.to_q', 'attn1.to_k', 'attn1.to_v', 'attn2.to_q', 'ff.net.0.proj'))

    def is_behind_norm(self, name):
        """Whether a norm, or silu of it, is what comes in: where tern divides."""
        return self.is_behind_layer_norm(name) or name.endswith(('proj_in', 'conv1', 'conv2')) or name == 'conv_out'

    def record(self, prompts, first_seed):
        """{name: inputs of some calls}, and the latents."""
        kept, hooks, calls = {n: [] for n in self.layers}, [], []
        wanted = {int((k + 0.5) * self.args.steps / TIMES) for k in range(TIMES)}
        for n, m in self.layers.items():
            def hook(_, inputs, n=n):
                if self.step in wanted:
                    kept[n].append(inputs[0].clone())
            hooks.append(m.register_forward_pre_hook(hook))
        hooks.append(self.p.unet.register_forward_hook(lambda _, i, out: calls.append((i, out.sample)) if self.step in wanted else None))
        x = self.latents(prompts, first_seed)
        for h in hooks:
            h.remove()
        return kept, x, calls

    def call_error(self, calls):
        """NMSE of single calls of the UNet on inputs of the plain trajectory."""
        wrong = sum(float((self.p.unet(*i).sample - out).double().square().sum()) for i, out in calls)
        return wrong / sum(float(out.double().square().sum()) for _, out in calls)

    def error(self, way, inputs):
        """NMSE of a layer's result."""
        wrong = right = 0.
        for x in inputs:
            out = product(way.layer, x, way.layer.weight)
            wrong += float((way(x) - out).double().square().sum())
            right += float(out.double().square().sum())
        return wrong / right if right else 0.

    def most(self, name):
        """(C,) largest |x| of each input channel over the calibration."""
        layer = self.layers[name]
        return torch.stack([channels_last(x, layer).abs().flatten(0, -2).amax(0) for x in self.inputs[name]]).amax(0)

    def group(self, name):
        """Layers that read the same input, if it is so."""
        head, _, last = name.rpartition('.')
        of = {'to_q': ['to_q', 'to_k', 'to_v'], 'to_k': ['to_k', 'to_v'], 'to_v': ['to_k', 'to_v']}
        if head.endswith('attn1') and last in of:
            return [f'{head}.{k}' for k in of['to_q']]
        if head.endswith('attn2') and last in ('to_k', 'to_v'):
            return [f'{head}.{k}' for k in of['to_k']]
        return [name]

    def factors(self, name, alpha):
        names = self.group(name)
        w = torch.stack([weight_most(self.layers[n]) for n in names]).amax(0)
        s = self.most(name).clamp_min(1e-5) ** alpha / w.clamp_min(1e-5) ** (1 - alpha)
        return s.clamp_min(1e-5)

    def searched(self, name):
        """The factors of the alpha whose error is least over the group; None: those without are."""
        names = self.group(name)
        total = lambda s: sum(self.error(Way(self.layers[n], factors=s), self.inputs[n]) for n in names)  # noqa: E731
        best, alpha, error = None, None, total(None)
        for a in ALPHAS:
            s = self.factors(name, a)
            e = total(s)
            if e < error:
                best, alpha, error = s, a, e
        self.alphas[name] = alpha
        return best

    def shared(self, name):
        key = tuple(self.group(name))
        if key not in self.found:
            self.found[key] = self.searched(name)
        return self.found[key]

    def quantile(self, name, q):
        x = torch.cat([v.flatten().abs() for v in self.inputs[name]])
        return float(x.kthvalue(max(1, math.ceil(q * x.numel())))[0]) / 127

    def outliers(self, name, share):
        most = self.most(name)
        return most.topk(max(1, round(share * len(most)))).indices

    def ways(self):
        """[(title, way by layer name)]"""
        of = self.layers
        self.alphas, self.found = {}, {}
        dynamic = lambda n: Way(of[n])  # noqa: E731
        conv = lambda n: isinstance(of[n], torch.nn.Conv2d)  # noqa: E731
        norm, layer_norm = self.is_behind_norm, self.is_behind_layer_norm
        stepped = lambda v, of: ((v.log2() * of).round() / of).exp2()  # noqa: E731
        rows = [
            ('dynamic: linear by row, convolution by picture (tern)', dynamic),
            ('static, largest', lambda n: Way(of[n], scale=self.quantile(n, 1))),
            ('static, 99.99 %', lambda n: Way(of[n], scale=self.quantile(n, 0.9999))),
            ('static, 99.99 %, convolutions only', lambda n: Way(of[n], scale=self.quantile(n, 0.9999) if conv(n) else None)),
        ]
        rows += [(f'SmoothQuant {a:g}', lambda n, a=a: Way(of[n], factors=self.factors(n, a))) for a in (0.25, 0.5, 0.75)]
        rows += [('SmoothQuant, searched', lambda n: Way(of[n], factors=self.shared(n))),
                 ('0.5, powers of two', lambda n: Way(of[n], factors=stepped(self.factors(n, 0.5), 1)))]
        rows += [(f'{a:g} behind norms, steps of 2^(1/4)',
                  lambda n, a=a: Way(of[n], factors=stepped(self.factors(n, a), 4) if norm(n) else None)) for a in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)]
        rows += [('0.5 behind LayerNorm, steps of 2^(1/4)',
                  lambda n: Way(of[n], factors=stepped(self.factors(n, 0.5), 4) if layer_norm(n) else None)),
                 ('0.5 behind norms, powers of two', lambda n: Way(of[n], factors=stepped(self.factors(n, 0.5), 1) if norm(n) else None))]
        rows += [(f'{100 * k:g} % of channels in bf16', lambda n, k=k: Way(of[n], outliers=self.outliers(n, k))) for k in (0.001, 0.01, 0.03)]
        rows += [('searched, and 1 % in bf16', lambda n: Way(of[n], factors=self.shared(n), outliers=self.outliers(n, 0.01)))]
        return [rows[int(k)] for k in self.args.rows.split(',')] if self.args.rows else rows

    @torch.no_grad()
    def run(self):
        self.inputs, *_ = self.record(self.calibration, 100)
        tests, plain, calls = self.record(self.evaluation, 0)
        print('| activations | linear: median, worst NMSE | convolutions: median, worst | a call | latents: median, mean |\n|---|---|---|---|---|', flush=True)
        for title, make in self.ways():
            ways = {n: make(n) for n in self.layers}
            errors = {n: self.error(w, tests[n]) for n, w in ways.items()}
            for n, m in self.layers.items():
                m.forward = types.MethodType(lambda m, x, w=ways[n]: w(x) + (0 if m.bias is None else by_channel(m.bias, m, 'x')), m)
            x, call = self.latents(self.evaluation, 0), self.call_error(calls)
            for m in self.layers.values():
                del m.forward
            cells = []
            for kind in (torch.nn.Linear, torch.nn.Conv2d):
                v = torch.tensor([e for n, e in errors.items() if isinstance(self.layers[n], kind)])
                cells.append(f'{float(v.median()):.1e}, {float(v.max()):.1e}')
            latents = (x - plain).square().flatten(1).mean(1) / plain.var()
            print(f'| {title} | {cells[0]} | {cells[1]} | {call:.2e} | {float(latents.median()):.1e}, {float(latents.mean()):.1e} |', flush=True)
        found = [a for a in self.alphas.values()]
        print('\nalpha that was found, and groups of layers:',
              ', '.join(f'{"none" if a is None else round(a, 2)}: {found.count(a)}' for a in [None, *ALPHAS] if found.count(a)))


@torch.no_grad()
def plant(unet, count):
    """Channels of every LayerNorm become 100 times as large, the columns behind them as much smaller."""
    for block in (m for m in unet.modules() if hasattr(m, 'norm1') and hasattr(m, 'attn1')):
        readers = [(block.norm1, [block.attn1.to_q, block.attn1.to_k, block.attn1.to_v]), (block.norm2, [block.attn2.to_q]),
                   (block.norm3, [block.ff.net[0].proj])]
        for k, (norm, linears) in enumerate(readers):
            at = torch.randperm(len(norm.weight), generator=torch.Generator().manual_seed(k))[:count]
            norm.weight[at] *= 100
            norm.bias[at] *= 100
            for m in linears:
                m.weight[:, at] /= 100


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('model')
    ap.add_argument('--steps', type=int, default=8)
    ap.add_argument('--prompts', type=int, default=4, help='for each half: scales, and errors')
    ap.add_argument('--planted', type=int, default=0)
    ap.add_argument('--rows', help='numbers of rows, from 0: 0,5,6')
    ap.add_argument('--size', type=int, default=256)
    args = ap.parse_args()
    torch.set_num_threads(2)
    painter = Painter(args.model)
    if args.planted:
        plant(painter.unet, args.planted)
    each = -(-2 * args.prompts // len(GROUPS))
    prompts = [p for k in range(each) for g in GROUPS for p in [test_prompts(g, each)[k]]][:2 * args.prompts]
    Study(painter, prompts, args).run()


if __name__ == '__main__':
    main()
