"""AUTOMATIC1111's prompts, written down from what its documentation and its pictures say: which text has which weight, which
text holds at which step, how tokens fall into chunks, what emphasis does with the states. Plain scanners, no grammar."""
import torch

ROUND, SQUARE = 1.1, 1 / 1.1


def is_word(c):
    return c.isalnum() or c == "_"


def split_at_word(text, word):
    """The parts between the places where the word stands alone."""
    parts, begin, at = [], 0, text.find(word)
    while at >= 0:
        end = at + len(word)
        if not (at and is_word(text[at - 1])) and not (end < len(text) and is_word(text[end])):
            parts.append(text[begin:at])
            begin = end
        at = text.find(word, at + (end - at if begin == end else 1))
    return [*parts, text[begin:]]


# ---- (attention:1.2)


def weight_at(text, i):
    """(number as text, end) of ": 1.2 )" that begins at text[i]; None when something else does."""
    j = i + 1
    while j < len(text) and text[j].isspace():
        j += 1
    begin = j
    j += j < len(text) and text[j] in "+-"
    digits = j
    while j < len(text) and (text[j] == "." or text[j].isdecimal()):
        j += 1
    number, some = text[begin:j], j > digits
    while j < len(text) and text[j].isspace():
        j += 1
    return (number, j + 1) if some and j < len(text) and text[j] == ")" else None


def plain(out, text):
    parts = split_at_word(text, "BREAK")
    for n, part in enumerate(parts):
        if n:
            out.append(["BREAK", -1.0])
            part = part.lstrip()
        out.append([part.rstrip() if n + 1 < len(parts) else part, 1.0])


def attention(text):
    """[[text, weight]]; ["BREAK", -1] ends a chunk."""
    out, opened, i = [], {"(": [], "[": []}, 0

    def close(kind, factor):
        for entry in out[opened[kind].pop():]:
            entry[1] *= factor

    while i < len(text):
        c, number = text[i], weight_at(text, i) if text[i] == ":" else None
        end = i + 1
        if c == "\\":
            end = i + 2 if text[i + 1:i + 2] in tuple("()[]\\") else i + 1
            out.append([text[i + 1:end], 1.0])
        elif c in "([":
            opened[c].append(len(out))
        elif number:
            end = number[1]
            if opened["("]:
                close("(", float(number[0]))
            else:
                plain(out, text[i:end])
        elif c == ")" and opened["("]:
            close("(", ROUND)
        elif c == "]" and opened["["]:
            close("[", SQUARE)
        else:
            while c not in ")]:" and end < len(text) and text[end] not in "\\()[]:":
                end += 1
            plain(out, text[i:end])
        i = end
    for kind, factor in (("(", ROUND), ("[", SQUARE)):
        for begin in opened[kind]:
            for entry in out[begin:]:
                entry[1] *= factor
    merged = out[:1] or [["", 1.0]]
    for entry in out[1:]:
        if entry[1] == merged[-1][1]:
            merged[-1] = [merged[-1][0] + entry[0], entry[1]]
        else:
            merged.append(entry)
    return merged


# ---- [from:to:when], [a|b]

class NoSchedule(Exception):
    """The text is not what schedules are written in: all of it is taken as it stands."""


class Reader:
    """A tree of strings and of ("scheduled", before, after, when) and ("alternate", choices); lists are sequences."""

    def __init__(self, text, steps, before=0):
        self.text, self.steps, self.before, self.ends = text, steps, before, {steps}
        self.partner = {}
        stack = []
        for i, c in self.symbols():
            if c in "([":
                stack.append(i)
            elif c in ")]" and stack:
                j = stack.pop()
                if text[j] + c in ("()", "[]"):
                    self.partner[j] = i
                else:
                    stack.clear()

    def symbols(self):
        """Every character that is not escaped."""
        i = 0
        while i < len(self.text):
            if self.text[i] == "\\":
                if i + 1 == len(self.text) or self.text[i + 1] == "\n":
                    raise NoSchedule
                i += 2
            else:
                yield i, self.text[i]
                i += 1

    def top(self):
        out, i = [], 0
        while i < len(self.text):
            piece, end = self.construct(i)
            if piece is None:
                if self.text[i] == "|":
                    raise NoSchedule
                end = i + (2 if self.text[i] == "\\" else 1)
                piece = self.text[i:end]
            out.append(piece)
            i = end
        return out

    def prompt(self, begin, end):
        """A sequence without loose brackets, colons and bars; None when it has some."""
        out, i = [], begin
        while i < end:
            piece, to = self.construct(i)
            if piece is None:
                if self.text[i] in "()[]:|":
                    return None
                to = i + (2 if self.text[i] == "\\" else 1)
                piece = self.text[i:to]
            out.append(piece)
            i = to
        return out

    def cuts(self, begin, end):
        """Colons and bars between, outside of brackets."""
        found, i = [], begin
        while i < end:
            c = self.text[i]
            if c in ":|":
                found.append(i)
            i = self.partner[i] + 1 if i in self.partner and self.partner[i] < end else i + (2 if c == "\\" else 1)
        return found

    def construct(self, i):
        end = self.partner.get(i)
        if end is None:
            return None, i
        cuts = self.cuts(i + 1, end)
        edges = [i, *cuts, end]
        kinds = {self.text[c] for c in cuts}
        parts = [(a + 1, b) for a, b in zip(edges, edges[1:])]
        if self.text[i] == "(" and len(cuts) <= 1 and "|" not in kinds or not cuts:
            inner = [self.prompt(*p) for p in parts]
            if None in inner:
                return None, i
            return [self.text[i], *sum(([x, self.text[e]] for x, e in zip(inner, edges[1:])), [])], end + 1
        if self.text[i] == "(":
            return None, i
        if kinds == {"|"}:
            choices = [self.prompt(*p) for p in parts]
            return (None, i) if None in choices else (("alternate", choices), end + 1)
        number = self.number(*parts[-1])
        sides = [self.prompt(*p) for p in parts[:-1]]
        if kinds != {":"} or len(cuts) > 2 or number is None or None in sides:
            return None, i
        return ("scheduled", sides[0] if len(sides) == 2 else [], sides[-1], number), end + 1

    def number(self, begin, end):
        text = self.text[begin:end].strip()
        body = text[1:] if text[:1] in ("+", "-") else text
        mantissa, mark, exponent = body.replace("E", "e").partition("e")
        whole, point, fraction = mantissa.partition(".")
        if exponent[:1] in ("+", "-"):
            exponent = exponent[1:]
        digits = [d for d in (whole, fraction) if d] + ([exponent] if mark else [])
        if not (whole or fraction) or not all(d and set(d) <= set("0123456789") for d in digits):
            return None
        if "." in text:
            value = (float(text) - (1 if self.before else 0)) * self.steps
        else:
            value = float(text) - self.before
        return self.steps if value >= self.steps else int(value)


def ends_of(tree, steps, out):
    for piece in tree:
        if isinstance(piece, list):
            ends_of(piece, steps, out)
        elif isinstance(piece, tuple):
            if piece[0] == "alternate":
                out.update(range(1, steps + 1))
                ends_of(piece[1], steps, out)
            else:
                out.update([piece[3]] if piece[3] >= 1 else [])
                ends_of([piece[1], piece[2]], steps, out)


def text_at(tree, step):
    out = ""
    for piece in tree:
        if isinstance(piece, str):
            out += piece
        elif isinstance(piece, list):
            out += text_at(piece, step)
        elif piece[0] == "alternate":
            out += text_at(piece[1][(step - 1) % len(piece[1])], step)
        else:
            out += text_at(piece[1] if step <= piece[3] else piece[2], step)
    return out


def schedule(text, steps, before=0):
    """[[last step, text]]; of a second pass `before` is the number of steps of the first."""
    try:
        tree = Reader(text, steps, before).top()
    except NoSchedule:
        return [[steps, text]]
    ends = {steps}
    ends_of(tree, steps, ends)
    return [[end, text_at(tree, end)] for end in sorted(ends)]


def holds_at(parts, call):
    """Index of what holds at that call of the UNet, counted from 0."""
    return next((n for n, part in enumerate(parts) if call <= part[0]), 0)


# ---- a AND b :0.5


def compose(text):
    """[[text, weight]]"""
    out = []
    for part in split_at_word(text, "AND"):
        body, colon, number = part.rpartition(":")
        digits = number.strip()
        digits = digits[1:] if digits[:1] in ("+", "-") else digits
        whole, point, fraction = digits.partition(".")
        good = (whole.isdecimal() or not whole) and (fraction.isdecimal() or not fraction) and (whole or fraction)
        if colon and good:
            out.append([body.rstrip(), float(number)])
        else:
            out.append([part.rstrip(), 1.0])
    return out


# ---- tokens in chunks

BACKTRACK = 20


class Encoder:
    """One text encoder with its tokenizer. `layers`: the states that count, from hidden_states and the final norm."""

    def __init__(self, model, tokenizer, words_only, layer, words=()):
        self.model, self.tokenizer, self.layer = model, tokenizer, layer
        self.begin, self.end = tokenizer.bos_token_id, tokenizer.eos_token_id
        self.pad = words_only["pad"] if words_only else self.end
        self.length = tokenizer.model_max_length
        self.comma = self.tokens(",")[0] if len(self.tokens(",")) == 1 else None
        # words: [(name, vectors (V, D))], the longest first
        self.words = sorted(((self.tokens(n), v) for n, v in words), key=lambda w: -len(w[0]))

    def tokens(self, text):
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def chunks(self, text):
        """[[(token or vector, weight)]], none longer than a chunk without begin and end."""
        room, done, now, comma = self.length - 2, [], [], None
        for part, weight in attention(text):
            if part == "BREAK" and weight == -1:
                done.append(now)
                now, comma = [], None
                continue
            ids, at = self.tokens(part), 0
            while at < len(ids):
                if ids[at] == self.comma:
                    comma = len(now)
                elif len(now) == room and comma is not None and room - comma <= BACKTRACK:
                    done.append(now[:comma + 1])
                    now, comma = now[comma + 1:], None
                if len(now) == room:
                    done.append(now)
                    now, comma = [], None
                found = next((w for w in self.words if ids[at:at + len(w[0])] == w[0]), None)
                if found:
                    if len(now) + len(found[1]) > room:
                        done.append(now)
                        now, comma = [], None
                    now += [(v, weight) for v in found[1]]
                    at += len(found[0])
                else:
                    now.append((ids[at], weight))
                    at += 1
        return done + [now] if now or not done else done

    def run(self, chunk):
        """(states (L, D), pooled or None, weights (L)) of one chunk."""
        fill = self.length - 1 - len(chunk)
        entries = [(self.begin, 1.0), *chunk, *[(self.end, 1.0)] * fill]
        ids = [0 if torch.is_tensor(e) else e for e, _ in entries]
        if self.pad != self.end:
            first = ids.index(self.end)
            ids[first + 1:] = [self.pad] * (len(ids) - first - 1)

        def put(_, args, out):
            out = out.clone()
            for n, (e, _) in enumerate(entries):
                if torch.is_tensor(e):
                    out[0, n] = e
            return out

        hook = self.model.get_input_embeddings().register_forward_hook(put)
        out = self.model(torch.tensor([ids]), output_hidden_states=True)
        hook.remove()
        return self.layer(self.model, out)[0], getattr(out, "text_embeds", [None])[0], torch.tensor([w for _, w in entries])

    def encode(self, texts, emphasis="Original", chunks=0):
        """(states of each text (tokens, D), pooled of each): texts of one schedule go together, so that they share the mean."""
        parts = [self.chunks(t) for t in texts]
        states, pooled = [[] for _ in texts], [None] * len(texts)
        for n in range(max(max(map(len, parts)), chunks)):
            runs = [self.run(p[n] if n < len(p) else []) for p in parts]
            z, w = torch.stack([r[0] for r in runs]).double(), torch.stack([r[2] for r in runs]).double()[..., None]
            if emphasis == "Original":
                z = z * w * (z.mean() / (z * w).mean())
            elif emphasis == "No norm":
                z = z * w
            for k, run in enumerate(runs):
                states[k].append(z[k].float())
                pooled[k] = run[1] if n == 0 else pooled[k]
        return [torch.cat(s) for s in states], pooled
