// GroupNorm, optionally with SiLU behind it, for bf16 channels-last maps: forward and backward.
// x (B, C, H, W) stored as B x N x C with N = H * W; statistics and parameter gradients in f32.
// Linked without -fopenmp: at::parallel_for must use the thread pool that torch loaded.
#include <ATen/Parallel.h>
#include <cmath>
#include <cstring>
#include <torch/extension.h>
#include <vector>

namespace {

float widen(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

uint16_t narrow(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

const uint16_t *bf16(const torch::Tensor &t) { return (const uint16_t *)t.data_ptr(); }
uint16_t *bf16_out(torch::Tensor &t) { return (uint16_t *)t.data_ptr(); }
torch::Tensor f32(const torch::Tensor &t) { return t.to(torch::kFloat).contiguous(); }

struct Shape {
    int64_t batch, channels, pixels, per_group;
};

Shape shape_of(const torch::Tensor &x, int64_t groups)
{
    int64_t b = x.size(0), c = x.size(1);
    return {b, c, x.numel() / (b * c), c / groups};
}

// One picture: sums per channel, then mean and 1 / deviation of its group for each channel.
void statistics(const uint16_t *x, const Shape &s, double eps, float *mean, float *rstd)
{
    std::vector<float> sum(s.channels), square(s.channels);
    float *a = sum.data(), *q = square.data();
    for (int64_t n = 0; n < s.pixels; n++) {
        const uint16_t *row = x + n * s.channels;
#pragma omp simd
        for (int c = 0; c < s.channels; c++) {
            float v = widen(row[c]);
            a[c] += v;
            q[c] += v * v;
        }
    }
    for (int64_t g = 0; g < s.channels; g += s.per_group) {
        double total = 0, squares = 0, count = (double)s.pixels * s.per_group;
        for (int64_t c = g; c < g + s.per_group; c++) {
            total += a[c];
            squares += q[c];
        }
        double m = total / count, var = std::max(squares / count - m * m, 0.0);
        for (int64_t c = g; c < g + s.per_group; c++) {
            mean[c] = m;
            rstd[c] = 1.0 / std::sqrt(var + eps);
        }
    }
}

// y = f(x * scale + offset), f the identity or SiLU.
void apply(const uint16_t *x, uint16_t *y, const Shape &s, const float *scale, const float *offset, bool silu)
{
    for (int64_t n = 0; n < s.pixels; n++, x += s.channels, y += s.channels) {
        if (silu) {
#pragma omp simd
            for (int c = 0; c < s.channels; c++) {
                float v = widen(x[c]) * scale[c] + offset[c];
                y[c] = narrow(v / (1.f + expf(-v)));
            }
        } else {
#pragma omp simd
            for (int c = 0; c < s.channels; c++)
                y[c] = narrow(widen(x[c]) * scale[c] + offset[c]);
        }
    }
}

// Gradient behind the norm (through SiLU where it is), and the sums that are the gradients of w and b.
// h = (x - mean) * rstd is x * p + q.
void through_silu(const uint16_t *x, const uint16_t *dy, uint16_t *g, const Shape &s, const float *p, const float *q,
                  const float *w, const float *b, bool silu, float *dw, float *db)
{
    for (int64_t n = 0; n < s.pixels; n++, x += s.channels, dy += s.channels, g += s.channels) {
        if (silu) {
#pragma omp simd
            for (int c = 0; c < s.channels; c++) {
                float h = widen(x[c]) * p[c] + q[c], v = h * w[c] + b[c], sig = 1.f / (1.f + expf(-v));
                float d = widen(dy[c]) * sig * (1.f + v * (1.f - sig));
                g[c] = narrow(d);
                db[c] += d;
                dw[c] += d * h;
            }
        } else {
#pragma omp simd
            for (int c = 0; c < s.channels; c++) {
                float h = widen(x[c]) * p[c] + q[c], d = widen(dy[c]);
                g[c] = dy[c];
                db[c] += d;
                dw[c] += d * h;
            }
        }
    }
}

} // namespace

std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor w, torch::Tensor b, int64_t groups, double eps, bool silu)
{
    Shape s = shape_of(x, groups);
    auto y = torch::empty_like(x), mean = torch::empty({s.batch, s.channels}, torch::kFloat), rstd = torch::empty_like(mean);
    auto wf = f32(w), bf = f32(b);
    at::parallel_for(0, s.batch, 1, [&](int64_t begin, int64_t end) {
        std::vector<float> scale(s.channels), offset(s.channels);
        for (int64_t i = begin; i < end; i++) {
            float *m = mean.data_ptr<float>() + i * s.channels, *r = rstd.data_ptr<float>() + i * s.channels;
            int64_t at = i * s.pixels * s.channels;
            statistics(bf16(x) + at, s, eps, m, r);
            for (int64_t c = 0; c < s.channels; c++) {
                scale[c] = r[c] * wf.data_ptr<float>()[c];
                offset[c] = bf.data_ptr<float>()[c] - m[c] * scale[c];
            }
            apply(bf16(x) + at, bf16_out(y) + at, s, scale.data(), offset.data(), silu);
        }
    });
    return {y, mean, rstd};
}

std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor w, torch::Tensor b, torch::Tensor mean,
                                    torch::Tensor rstd, int64_t groups, bool silu)
{
    Shape s = shape_of(x, groups);
    auto dx = torch::empty_like(x), dw = torch::zeros({s.batch, s.channels}, torch::kFloat), db = torch::zeros_like(dw);
    auto wf = f32(w), bf = f32(b);
    const float *weight = wf.data_ptr<float>(), *bias = bf.data_ptr<float>();
    at::parallel_for(0, s.batch, 1, [&](int64_t begin, int64_t end) {
        std::vector<float> p(s.channels), q(s.channels), mean_g(s.channels), mean_gh(s.channels);
        std::vector<uint16_t> g(s.pixels * s.channels);
        for (int64_t i = begin; i < end; i++) {
            const float *m = mean.data_ptr<float>() + i * s.channels, *r = rstd.data_ptr<float>() + i * s.channels;
            float *dwi = dw.data_ptr<float>() + i * s.channels, *dbi = db.data_ptr<float>() + i * s.channels;
            int64_t at = i * s.pixels * s.channels;
            for (int64_t c = 0; c < s.channels; c++) {
                p[c] = r[c];
                q[c] = -m[c] * r[c];
            }
            through_silu(bf16(x) + at, bf16(dy) + at, g.data(), s, p.data(), q.data(), weight, bias, silu, dwi, dbi);
            for (int64_t k = 0; k < s.channels; k += s.per_group) {
                double sum_g = 0, sum_gh = 0, count = (double)s.pixels * s.per_group;
                for (int64_t c = k; c < k + s.per_group; c++) {
                    sum_g += (double)weight[c] * dbi[c];
                    sum_gh += (double)weight[c] * dwi[c];
                }
                for (int64_t c = k; c < k + s.per_group; c++) {
                    mean_g[c] = sum_g / count;
                    mean_gh[c] = sum_gh / count;
                }
            }
            const uint16_t *row = bf16(x) + at, *grow = g.data();
            uint16_t *out = bf16_out(dx) + at;
            const float *P = p.data(), *Q = q.data(), *G = mean_g.data(), *H = mean_gh.data();
            for (int64_t n = 0; n < s.pixels; n++, row += s.channels, grow += s.channels, out += s.channels) {
#pragma omp simd
                for (int c = 0; c < s.channels; c++) {
                    float h = widen(row[c]) * P[c] + Q[c];
                    out[c] = narrow(P[c] * (weight[c] * widen(grow[c]) - G[c] - h * H[c]));
                }
            }
        }
    });
    return {dx, dw.sum(0), db.sum(0)};
}
