// Makes variations of a picture from a prompt, with progress: txt2img PROMPT OUT.png [MODEL]
// c++ -std=c++17 txt2img.cpp $(pkg-config --cflags --libs tern) -o txt2img
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

#include <tern/tern.h>

// Objects of tern are destroyed through the address of their pointer.
template <typename T, void (*destroy)(T **)> struct deleter {
    void operator()(T *p) const { destroy(&p); }
};
template <typename T, void (*destroy)(T **)> using owned = std::unique_ptr<T, deleter<T, destroy>>;
using context = owned<tern_context, tern_context_destroy>;
using pipeline = owned<tern_pipeline, tern_pipeline_destroy>;
using images = owned<tern_images, tern_images_destroy>;

static void show(const tern_progress *p, void *)
{
    std::fprintf(stderr, "%s %lld/%lld\n", p->stage, static_cast<long long>(p->done), static_cast<long long>(p->total));
}

static void run(const std::string &prompt, const std::string &out, const char *model)
{
    tern_context_params settings{};
    settings.progress = show;
    context ctx(tern_context_create(&settings));
    if (!ctx)
        throw std::runtime_error(tern_create_error());

    tern_txt2img_params params{};
    params.prompt = prompt.c_str();
    params.steps = 8;
    params.sampler = TERN_SAMPLER_DPMPP_2M;
    params.count = 2;
    pipeline p(tern_pipeline_load(ctx.get(), model, nullptr));
    images made(p ? tern_generate(p.get(), &params) : nullptr);
    if (!made)
        throw std::runtime_error(tern_error(ctx.get()));
    const std::size_t name = out.rfind('/') + 1; // 0 without a folder
    for (int i = 0; i < tern_images_count(made.get()); i++) {
        const std::string path = out.substr(0, name) + std::to_string(i + 1) + "-" + out.substr(name);
        if (tern_image_save(tern_images_at(made.get(), i), path.c_str()))
            throw std::runtime_error(tern_error(ctx.get()));
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        std::fprintf(stderr, "usage: %s PROMPT OUT.png [MODEL]\n", argv[0]);
        return 2;
    }
    try {
        run(argv[1], argv[2], argc > 3 ? argv[3] : nullptr);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
