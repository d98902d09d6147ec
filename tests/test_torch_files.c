/* Files of torch.save, zip and legacy: equal to safetensors of the same tensors, and harmless whatever they hold. */
#include "weights_help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files.h"
#include "core/status.h"
#include "core/tensor.h"
#include "models/files/layout.h"
#include "support.h"

static void same_files(struct fixture *f, const char *a, const char *b)
{
    struct tern_weights *x = help_open(f, a), *y = help_open(f, b);
    help_same_weights(x, y);
    tern_weights_unref(&x);
    tern_weights_unref(&y);
}

/* Every dtype, transposed, sliced, expanded and shared views, a Parameter, a scalar, an empty tensor. */
static void zip_equals_safetensors(void **state) { same_files(*state, FORMATS "odd.pt", FORMATS "odd.safetensors"); }
static void legacy_equals_safetensors(void **state) { same_files(*state, FORMATS "odd-legacy.pt", FORMATS "odd.safetensors"); }

/* "state_dict" is left out of the names; what a trainer leaves around is ignored. */
static void nested_state_dict_is_flattened(void **state)
{
    struct fixture *f = *state;
    struct tern_weights *ckpt = help_open(f, FORMATS "mini.ckpt"), *flat = help_open(f, FORMATS "mini.safetensors");
    assert_int_equal(tern_weights_count(flat), 377);
    assert_int_equal(tern_weights_count(ckpt), 380);
    for (int64_t i = 0; i < 377; i++)
        help_same_tensor(tern_weights_at(flat, i), tern_weights_get(ckpt, tern_weights_name(flat, i)), tern_weights_name(flat, i));
    int32_t updates = 0;
    tern_tensor *t = tern_weights_get(ckpt, "model_ema.num_updates");
    assert_int_equal(tern_tensor_dtype(t), TERN_I32);
    assert_int_equal(tern_tensor_read(t, TERN_I32, &updates, 4), TERN_OK);
    assert_int_equal(updates, 12345);
    assert_int_equal(tern_tensor_numel(tern_weights_get(ckpt, "betas")), 1000);
    tern_weights_unref(&ckpt);
    tern_weights_unref(&flat);
}

static void stored_members_are_mapped(void **state)
{
    struct fixture *f = *state;
    struct tern_weights *w = help_open(f, FORMATS "mini-bin/unet/diffusion_pytorch_model.bin");
    for (int64_t i = 0; i < tern_weights_count(w); i++) {
        tern_tensor *t = tern_weights_at(w, i);
        const struct tern_mapping *m = t->buffer->user;
        const uint8_t *p = tern_tensor_host(t);
        assert_non_null(t->advise);
        assert_true(p > m->data && p + 2 * tern_tensor_numel(t) <= m->data + m->size);
        t->advise(t, false);
    }
    struct tern_weights *same = help_open(f, FORMATS "mini/unet/diffusion_pytorch_model.safetensors");
    help_same_weights(w, same);
    tern_weights_unref(&w);
    tern_weights_unref(&same);
}

static void cut_anywhere_is_refused(void **state)
{
    help_truncate_everywhere(*state, FORMATS "odd.pt", ".pt");
    help_truncate_everywhere(*state, FORMATS "odd-legacy.pt", ".pt");
    help_truncate_everywhere(*state, FORMATS "foreign-global.ckpt", ".ckpt");
}

static void any_changed_byte_is_survived(void **state)
{
    help_mutate_everywhere(*state, FORMATS "odd.pt", ".pt");
    assert_true(help_mutate_everywhere(*state, FORMATS "odd-legacy.pt", ".pt") > 500);
}

static void foreign_globals_are_named(void **state)
{
    struct fixture *f = *state;
    help_refused(f, FORMATS "foreign-global.ckpt", TERN_E_FORMAT, "it names \"posix.system\"");
    help_refused(f, FORMATS "foreign-global-legacy.pt", TERN_E_FORMAT, "it names \"posix.system\"");
    static const struct {
        const char *pickle, *text;
    } cases[] = {
        {"\x80\x04\x8c\x05posix\x8c\x06system\x93.", "it names \"posix.system\""}, /* STACK_GLOBAL */
        {"\x80\x02(iposix\nsystem\n.", "it names \"posix.system\""},               /* INST */
        {"\x80\x02(cposix\nsystem\no.", "it names \"posix.system\""},              /* OBJ */
        {"\x80\x02"
         "cbuiltins\neval\nU\x01"
         "1\x85R.",
         "it names \"builtins.eval\""}, /* REDUCE */
        {"\x80\x02"
         "c__builtin__\ngetattr\n.",
         "it names \"__builtin__.getattr\""},
        {"\x80\x02"
         "cevil\nOrderedDict\n.",
         "it names \"evil.OrderedDict\""},
        {"\x80\x02"
         "ctorch.storage\n_load_from_bytes\n.",
         "it names \"torch.storage._load_from_bytes\""},
        {"\x80\x02"
         "cpytorch_lightning.callbacks.model_checkpoint\nModelCheckpoin\n.",
         "it names \"pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoin\""},
        {"\x80\x02"
         "ctorch\n\x1b[31m\n.",
         "it names \"torch.?[31m\""}, /* no control characters in messages */
        {"\x80\x02"
         "ctorch\nFloatStorage\n)R.",
         "it calls \"torch.FloatStorage\""},
        {"\x80\x02"
         "ctorch\nfloat32\n)\x81.",
         "it calls \"torch.float32\""},
        {"\x80\x02K\x01)R.", "it calls something that is no function"},
        {"\x80\x02]}b.", "it sets attributes of something that is no dict and no tensor"},
        {"\x80\x02\x82\x01.", "opcode 0x82"}, /* EXT1 */
        {"\x80\x02(K\x01tQ.", "expected a storage"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        help_refused(f, help_file(f, "w.ckpt", cases[i].pickle, strlen(cases[i].pickle)), TERN_E_FORMAT, cases[i].text);
        const struct member m = {"a/data.pkl", cases[i].pickle, strlen(cases[i].pickle), 0};
        help_refused(f, help_zip(f, "w.ckpt", &m, 1), TERN_E_FORMAT, cases[i].text);
    }
}

static void views_of_a_storage_are_checked(void **state)
{
    struct fixture *f = *state;
    struct bytes b;
    const float data[6] = {0, 1, 2, 3, 4, 5};
    static const struct {
        int64_t numel, offset, n, shape[9], stride[9];
        const char *text; /* NULL: fine, the first element is `first` */
        float first;
    } cases[] = {
        {6, 0, 2, {2, 3}, {3, 1}, NULL, 0},
        {6, 1, 2, {5, 1}, {1, 77}, NULL, 1},
        {6, 6, 1, {0}, {1}, NULL, 0},
        {6, 2, 2, {1LL << 40, 0}, {1LL << 40, 1}, NULL, 0},
        {6, 3, 3, {2, 1, 2}, {1, INT64_MAX, 1}, NULL, 3}, /* the stride of one element says nothing */
        {6, 1, 2, {2, 3}, {3, 1}, "lies outside its storage of 6 elements", 0},
        {6, 0, 2, {3, 3}, {2, 1}, "lies outside its storage", 0},
        {6, 6, 0, {0}, {0}, "lies outside its storage", 0},
        {6, 7, 1, {0}, {1}, "lies outside its storage", 0},
        {6, -1, 1, {2}, {1}, "a tensor's offset, size or stride is not valid", 0},
        {6, 5, 1, {2}, {-1}, "a tensor's offset, size or stride is not valid", 0},
        {6, 0, 1, {-2}, {1}, "a tensor's offset, size or stride is not valid", 0},
        {6, 0, 9, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, "expected at most 8 dimensions", 0},
        {6, 0, 3, {2147483647, 2147483647, 2147483647}, {0, 0, 0}, "a product that fits", 0},
        {6, 0, 1, {2147483647}, {2147483647}, "lies outside its storage", 0},
        {6, 0, 2, {46341, 46341}, {0, 0}, "would unpack to 8589953124 bytes", 0},
        {5, 0, 1, {5}, {1}, "storage \"0\": expected 20 bytes, found 24", 0},
        {-6, 0, 1, {6}, {1}, "expected a storage", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        pickle_w(&b, cases[i].numel, cases[i].offset, cases[i].n, cases[i].shape, cases[i].stride);
        const char *path = help_zip_of(f, &b, data, sizeof(data), 0);
        if (cases[i].text) {
            help_refused(f, path, TERN_E_FORMAT, cases[i].text);
            continue;
        }
        struct tern_weights *w = help_open(f, path);
        float x[6] = {0};
        tern_tensor *t = tern_weights_get(w, "w");
        assert_int_equal(tern_tensor_read(t, TERN_F32, x, 4 * (size_t)tern_tensor_numel(t)), TERN_OK);
        assert_true(x[0] == cases[i].first);
        tern_weights_unref(&w);
    }
}

/* The file of a pickle whose storage "0" has two numbers has one tensor, these under that name. */
static void expect_only(struct fixture *f, const struct bytes *pickle, const char *name)
{
    static const float data[2] = {3, 4};
    float x[2];
    struct tern_weights *w = help_open(f, help_zip_of(f, pickle, data, sizeof(data), 0));
    assert_int_equal(tern_weights_count(w), 1);
    assert_int_equal(tern_tensor_read(tern_weights_get(w, name), TERN_F32, x, sizeof(x)), TERN_OK);
    assert_memory_equal(x, data, sizeof(x));
    tern_weights_unref(&w);
}

/* Files of whole trainings, as the first ones of Stable Diffusion: a class as a key, numbers of NumPy with their states, a tensor that
 * belongs to no state dict. */
static void what_trainings_leave_is_passed_over(void **state)
{
    struct fixture *f = *state;
    struct bytes b = {.size = 0};
    pickle_begin(&b);
    put_text(&b, "}");
    pickle_str(&b, "callbacks");
    put_text(&b, "}");
    pickle_global(&b, "pytorch_lightning.callbacks.model_checkpoint", "ModelCheckpoint");
    put_text(&b, "}");
    pickle_str(&b, "best_model_score");
    pickle_global(&b, "numpy.core.multiarray", "scalar");
    pickle_global(&b, "numpy", "dtype");
    pickle_str(&b, "f8");
    put_text(&b, "\x85R"); /* dtype("f8") */
    pickle_ints(&b, 1, (const int64_t[]){3});
    put_text(&b, "b"); /* its state */
    pickle_str(&b, "12345678");
    put_text(&b, "\x86R"); /* scalar(dtype, bytes) */
    put_text(&b, "sss");
    pickle_str(&b, "state_dict");
    put_text(&b, "}");
    pickle_str(&b, "w");
    pickle_tensor(&b, "0", 2, 0, 1, (const int64_t[]){2}, (const int64_t[]){1});
    put_text(&b, "ss.");
    expect_only(f, &b, "w");
}

/* As the original code of textual inversion saves its vectors: a module, whose parameters are set as an attribute. */
static void parameter_dicts_are_dicts(void **state)
{
    struct fixture *f = *state;
    struct bytes b = {.size = 0};
    pickle_begin(&b);
    put_text(&b, "}");
    pickle_str(&b, "string_to_param");
    pickle_global(&b, "torch.nn.modules.container", "ParameterDict");
    put_text(&b, ")\x81}"); /* NEWOBJ; its attributes: */
    pickle_str(&b, "training");
    put_text(&b, "\x89s");
    pickle_str(&b, "_parameters");
    pickle_global(&b, "collections", "OrderedDict");
    put_text(&b, ")R");
    pickle_str(&b, "*");
    pickle_tensor(&b, "0", 2, 0, 2, (const int64_t[]){1, 2}, (const int64_t[]){2, 1});
    put_text(&b, "ssbs.");
    expect_only(f, &b, "string_to_param.*");
}

/* Three dimensions in another order than the memory's. */
static void permuted_tensors_become_contiguous(void **state)
{
    struct fixture *f = *state;
    struct bytes b;
    float data[24], x[24];
    for (int i = 0; i < 24; i++)
        data[i] = (float)i;
    pickle_w(&b, 24, 0, 3, (int64_t[]){2, 3, 4}, (int64_t[]){1, 2, 6});
    struct tern_weights *w = help_open(f, help_zip_of(f, &b, data, sizeof(data), 0));
    assert_int_equal(tern_tensor_read(tern_weights_get(w, "w"), TERN_F32, x, sizeof(x)), TERN_OK);
    for (int i = 0; i < 24; i++)
        assert_true(x[i] == (float)(i / 12 + 2 * (i / 4 % 3) + 6 * (i % 4)));
    tern_weights_unref(&w);
}

/* A whole pickle in a zip: `body` between PROTO 2 and STOP. */
static void refuse_body(struct fixture *f, const char *body, size_t size, const char *text)
{
    struct bytes b = {.size = 0};
    pickle_begin(&b);
    put_raw(&b, body, size);
    put_text(&b, ".");
    const struct member m = {"a/data.pkl", b.data, b.size, 0};
    help_refused(f, help_zip(f, "w.pt", &m, 1), TERN_E_FORMAT, text);
}

static void damaged_pickles_are_refused(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *body;
        size_t size;
        const char *text;
    } cases[] = {
        {"}", 1, "it holds no named tensors"},
        {"]", 1, "expected a dict of tensors"},
        {"", 0, "the stack is empty"},
        {"0", 1, "the stack is empty"},
        {"t", 1, "there is no mark"},
        {"(0t", 3, "there is no mark"},
        {"}(0K\1s", 6, "the stack is empty"},
        {"}(K\1u", 5, "added to something that does not take them"},
        {"N(K\1e", 5, "added to something that does not take them"},
        {"h\5", 2, "memo entry 5 does not exist"},
        {"}r\xff\xff\xff\xff", 6, "memo index 4294967295 is out of range"},
        {"X\xff\xff\xff\xffx", 6, "4294967295 more bytes expected"},
        {"X\1\0\0\0\xff", 6, "a text is not valid UTF-8"},
        {"\x8d\xff\xff\xff\xff\xff\xff\xff\xffx", 10, "18446744073709551615 more bytes expected"},
        {"I12x\n", 5, "a number that stands as text is not valid"},
        {"F\n", 2, "a number that stands as text is not valid"},
        {"cno end of line", 15, "a line has no end"},
        {"\x80\x09", 2, "protocol 9"},
        {"S'x'\n", 5, "opcode 0x53"},
        {"(K\1d", 4, "a dict has a key without a value"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        refuse_body(f, cases[i].body, cases[i].size, cases[i].text);
}

/* Dicts in dicts, deeper than any model; a dict that holds itself; one that is reached in 2^40 ways. */
static void nesting_is_limited(void **state)
{
    struct fixture *f = *state;
    struct bytes b = {.size = 0};
    for (int i = 0; i < 3000; i++) {
        put_text(&b, "}");
        pickle_str(&b, "a");
    }
    put_text(&b, "}");
    for (int i = 0; i < 3000; i++)
        put_text(&b, "s");
    refuse_body(f, (char *)b.data, b.size, "dicts are nested deeper than 64");
    b.size = 0;
    put_text(&b, "}q");
    put_raw(&b, "\1", 1);
    pickle_str(&b, "a");
    put_raw(&b, "h\1s", 3);
    refuse_body(f, (char *)b.data, b.size, "dicts are nested deeper than 64");
    b.size = 0;
    put_raw(&b, "}q\0", 3);
    for (uint8_t i = 0; i < 40; i++) {
        const uint8_t get[2] = {'h', i}, put[2] = {'q', (uint8_t)(i + 1)};
        put_text(&b, "}");
        for (int k = 0; k < 2; k++) {
            pickle_str(&b, k ? "b" : "a");
            put_raw(&b, get, 2);
            put_text(&b, "s");
        }
        put_raw(&b, put, 2);
    }
    refuse_body(f, (char *)b.data, b.size, "more than 4000000 entries in its dicts");
}

/* Puts a dict that has `key` n times, each time with what the memo has at `value`. The memo gets the dict at `at`, its key behind it. */
static void put_same(struct bytes *b, const char *key, int n, uint8_t value, uint8_t at)
{
    const uint8_t dict[] = {'}', 'q', at, '('}, name[] = {'q', (uint8_t)(at + 1), 'h', value},
                  again[] = {'h', (uint8_t)(at + 1), 'h', value};
    put_raw(b, dict, sizeof(dict));
    pickle_str(b, key);
    put_raw(b, name, sizeof(name));
    for (int i = 1; i < n; i++)
        put_raw(b, again, sizeof(again));
    put_text(b, "u");
}

/* A file of one tensor that is `inner` times in a dict, which is `outer` times in another; keys have `length` letters. */
static const char *same_dicts(struct fixture *f, int outer, int inner, int length)
{
    struct bytes b = {.size = 0};
    char key[256];
    memset(key, 'k', sizeof(key));
    key[length] = 0;
    pickle_begin(&b);
    pickle_tensor(&b, "0", 1, 0, 1, (const int64_t[]){1}, (const int64_t[]){1});
    put_raw(&b, "q\0010", 3);
    put_same(&b, key, inner, 1, 2);
    put_text(&b, "0");
    put_same(&b, key, outer, 2, 4);
    put_text(&b, ".");
    return help_zip_of(f, &b, (const float[]){1}, 4, 0);
}

/* Numbers that stand as text have a point, also in a program whose locale has a comma. */
static void numbers_have_a_point_in_every_locale(void **state)
{
    struct fixture *f = *state;
    struct bytes b = {.size = 0};
    support_point(f->folder, ",");
    pickle_begin(&b);
    put_text(&b, "}(");
    pickle_str(&b, "w");
    pickle_tensor(&b, "0", 1, 0, 1, (const int64_t[]){1}, (const int64_t[]){1});
    pickle_str(&b, "rate");
    put_text(&b, "F0.25\nu.");
    struct tern_weights *w = tern_weights_open(f->ctx, help_zip_of(f, &b, (const float[]){1}, 4, 0));
    support_point(f->folder, ".");
    assert_string_equal(tern_error(f->ctx), "");
    assert_non_null(tern_weights_get(w, "w"));
    tern_weights_unref(&w);
}

/* Kilobytes whose names would fill gigabytes: refused before they do. */
static void names_are_limited(void **state)
{
    struct fixture *f = *state;
    help_refused(f, same_dicts(f, 1990, 1990, 250), TERN_E_FORMAT, "which is more than a file of");
    assert_true(tern_memory_peak(f->ctx) < (size_t)16 << 20);
    help_refused(f, same_dicts(f, 1990, 1990, 1), TERN_E_FORMAT, "which is more than a file of");
    assert_true(tern_memory_peak(f->ctx) < (size_t)16 << 20);
    help_refused(f, same_dicts(f, 4, 4, 250), TERN_E_FORMAT, "twice");
}

/* Two names for one dict, as some trainers' files have. */
static void dicts_may_be_shared(void **state)
{
    struct fixture *f = *state;
    struct bytes b = {.size = 0};
    pickle_begin(&b);
    pickle_tensor(&b, "0", 1, 0, 1, (const int64_t[]){1}, (const int64_t[]){1});
    put_raw(&b, "q\0010", 3);
    put_same(&b, "w", 1, 1, 2);
    put_text(&b, "0}(");
    pickle_str(&b, "model");
    put_raw(&b, "h\2", 2);
    pickle_str(&b, "ema");
    put_raw(&b, "h\2u.", 4);
    struct tern_weights *w = help_open(f, help_zip_of(f, &b, (const float[]){1}, 4, 0));
    assert_int_equal(tern_weights_count(w), 2);
    assert_non_null(tern_weights_get(w, "model.w"));
    assert_non_null(tern_weights_get(w, "ema.w"));
    tern_weights_unref(&w);
}

static void damaged_legacy_files_are_refused(void **state)
{
    struct fixture *f = *state;
    size_t size;
    uint8_t *good = help_read(FORMATS "odd-legacy.pt", &size), *at;
    help_refused(f, help_file(f, "w.pt", "\x80\x02K\x01.", 5), TERN_E_FORMAT, "a pickle, but not one that torch.save wrote");
    at = memmem(good, size, "\xe9\x03.", 3); /* 1001 */
    at[0] = 1;
    help_refused(f, help_file(f, "w.pt", good, size), TERN_E_FORMAT, "protocol version of torch.save: expected 1001");
    at[0] = 0xe9;
    at = memmem(good, size, "little_endian", 13);
    assert_int_equal(at[15], 0x88); /* behind BINPUT */
    at[15] = 0x89;
    help_refused(f, help_file(f, "w.pt", good, size), TERN_E_UNSUPPORTED, "it is big-endian");
    at[15] = 'N';
    help_refused(f, help_file(f, "w.pt", good, size), TERN_E_FORMAT, "the byte order that torch.save wrote down is missing");
    free(good);
    uint8_t tar[512] = {0};
    memcpy(tar, "tensors", 7);
    memcpy(tar + 257, "ustar", 5);
    help_refused(f, help_file(f, "w.pt", tar, sizeof(tar)), TERN_E_FORMAT, "a tar archive");
}

/* A legacy file of { "w": 4 floats } whose list of storages, number of elements and bytes are given. */
static const char *legacy_of(struct fixture *f, const char *keys, uint64_t numel, size_t bytes)
{
    struct bytes b = {.size = 0}, object;
    put_raw(&b,
            "\x80\x02\x8a\x0al\xfc\x9c"
            "F\xf9 j\xa8P\x19.",
            15);
    put_raw(&b, "\x80\x02M\xe9\x03.", 6);
    put_raw(&b, "\x80\x02}X\x0d\0\0\0little_endian\x88s.", 24);
    pickle_w(&object, 4, 0, 1, (int64_t[]){4}, (int64_t[]){1});
    put_raw(&b, object.data, object.size);
    put_raw(&b, "\x80\x02](", 4);
    for (; *keys; keys++)
        pickle_str(&b, (char[]){*keys, 0});
    put_text(&b, "e.");
    put_u64(&b, numel);
    put_raw(&b, (float[8]){1, 2, 3, 4}, bytes);
    return help_file(f, "w.pt", b.data, b.size);
}

static void legacy_storages_are_checked(void **state)
{
    struct fixture *f = *state;
    struct tern_weights *w = help_open(f, legacy_of(f, "0", 4, 16));
    float x[4];
    assert_int_equal(tern_tensor_read(tern_weights_get(w, "w"), TERN_F32, x, 16), TERN_OK);
    assert_memory_equal(x, ((float[]){1, 2, 3, 4}), 16);
    tern_weights_unref(&w);
    help_refused(f, legacy_of(f, "0", 3, 16), TERN_E_FORMAT, "storage \"0\": expected 4 elements, found 3");
    help_refused(f, legacy_of(f, "0", 5, 20), TERN_E_FORMAT, "storage \"0\": expected 4 elements, found 5");
    help_refused(f, legacy_of(f, "0", 4, 12), TERN_E_FORMAT, "storage \"0\": expected 16 bytes, found 12; the file is truncated");
    help_refused(f, legacy_of(f, "", 4, 16), TERN_E_FORMAT, "a storage that the objects name is not in the file");
    help_refused(f, legacy_of(f, "1", 4, 16), TERN_E_FORMAT, "holds one that is unknown or there already");
    help_refused(f, legacy_of(f, "00", 4, 16), TERN_E_FORMAT, "holds one that is unknown or there already");
    help_refused(f,
                 help_file(f, "w.pt",
                           "\x80\x02\x8a\x0a"
                           "0123456789.",
                           15),
                 TERN_E_FORMAT, "not one that torch.save wrote");
}

/* A budget that the copies do not fit into is an error with both numbers. */
static void budgets_hold(void **state)
{
    struct tern_context_params params = {.budget = 64 << 10};
    struct tern_context *ctx = tern_context_create(&params);
    assert_null(tern_weights_open(ctx, FORMATS "mini.ckpt"));
    assert_int_equal(tern_error_status(ctx), TERN_E_BUDGET);
    assert_non_null(strstr(tern_error(ctx), "memory budget of 65536 bytes"));
    tern_context_destroy(&ctx);
}

struct failing {
    int64_t left; /* counts down; allocations fail while it is below 0 … */
    int64_t last; /* … and not below this */
    size_t bytes; /* given out now */
};

static void *failing_alloc(size_t size, size_t alignment, void *user)
{
    struct failing *a = user;
    void *p = NULL;
    a->left--;
    if ((a->left < 0 && a->left >= a->last) || posix_memalign(&p, alignment, size))
        return NULL;
    a->bytes += size;
    return p;
}

static void failing_free(void *ptr, size_t size, void *user)
{
    ((struct failing *)user)->bytes -= size;
    free(ptr);
}

static bool open_and_release(struct tern_context *ctx, const char *path)
{
    struct tern_checkpoint *cp = strstr(path, "mini") && !strstr(path, ".json") ? tern_checkpoint_open(ctx, path) : NULL;
    struct tern_weights *w = cp ? tern_checkpoint_weights(cp, "vae") : tern_failed(ctx) ? NULL : tern_weights_open(ctx, path);
    bool ok = w;
    tern_weights_unref(&w);
    tern_checkpoint_close(&cp);
    return ok;
}

/* Memory runs out at every allocation in turn, for good or for one allocation and its second try: always the error, never a leak. */
static void every_failed_allocation_is_reported(void **state)
{
    static const char *const paths[] = {
        FORMATS "odd.safetensors",  FORMATS "odd.pt",
        FORMATS "odd-legacy.pt",    FORMATS "mini",
        FORMATS "mini.safetensors", FORMATS "mini-sharded/unet/diffusion_pytorch_model.safetensors.index.json"};
    for (int i = 0; i < 12; i++) {
        const char *path = paths[i / 2];
        struct failing a = {.left = INT64_MAX, .last = i % 2 ? -2 : INT64_MIN};
        struct tern_context_params params = {.threads = 1, .allocator = {failing_alloc, failing_free, &a}};
        struct tern_context *ctx = tern_context_create(&params);
        const size_t idle = a.bytes;
        int64_t n = 0;
        bool ok = false;
        for (; !ok; n += 1 + n / 64) {
            a.left = n;
            ok = open_and_release(ctx, path);
            if (ok == tern_failed(ctx) || (!ok && tern_error_status(ctx) != TERN_E_NO_MEMORY))
                fail_msg("%s: allocation %lld: \"%s\"", path, (long long)n, tern_error(ctx));
            assert_int_equal(a.bytes, idle);
            tern_error_clear(ctx);
        }
        assert_true(n > 50);
        a.left = INT64_MAX;
        tern_context_destroy(&ctx);
        assert_int_equal(a.bytes, 0);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, help_setup, help_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(zip_equals_safetensors),
        TEST(legacy_equals_safetensors),
        TEST(nested_state_dict_is_flattened),
        TEST(stored_members_are_mapped),
        TEST(cut_anywhere_is_refused),
        TEST(any_changed_byte_is_survived),
        TEST(foreign_globals_are_named),
        TEST(what_trainings_leave_is_passed_over),
        TEST(parameter_dicts_are_dicts),
        TEST(views_of_a_storage_are_checked),
        TEST(permuted_tensors_become_contiguous),
        TEST(damaged_pickles_are_refused),
        TEST(nesting_is_limited),
        TEST(names_are_limited),
        TEST(numbers_have_a_point_in_every_locale),
        TEST(dicts_may_be_shared),
        TEST(damaged_legacy_files_are_refused),
        TEST(legacy_storages_are_checked),
        TEST(budgets_hold),
        TEST(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
