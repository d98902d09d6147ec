/* What shaderc's C interface is, made of glslang's: a library for tests, where that of shaderc does not load (Debian 12's lacks
 * symbols). Both come from one code base; only what the Vulkan backend uses is here. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <glslang/Include/glslang_c_interface.h>

/* In the library glslang-default-resource-limits, whose header is not always there. */
extern const glslang_resource_t *glslang_default_resource(void);

struct shaderc_result {
    glslang_shader_t *shader;
    glslang_program_t *program;
    int status;
};

#define EXPORT __attribute__((visibility("default")))
#define API(type, name, parameters) \
    EXPORT type name parameters;    \
    type name parameters

API(void *, shaderc_compiler_initialize, (void)) { return glslang_initialize_process() ? malloc(1) : NULL; }
API(void, shaderc_compiler_release, (void *c))
{
    glslang_finalize_process();
    free(c);
}
API(void *, shaderc_compile_options_initialize, (void)) { return malloc(1); }
API(void, shaderc_compile_options_release, (void *o)) { free(o); }
API(void, shaderc_compile_options_set_target_env, (void *o, int target, uint32_t version)) {}

API(struct shaderc_result *, shaderc_compile_into_spv,
    (void *c, const char *source, size_t size, int kind, const char *name, const char *entry, void *options))
{
    struct shaderc_result *r = calloc(1, sizeof(*r));
    char *text = strndup(source, size);
    const glslang_input_t input = {.language = GLSLANG_SOURCE_GLSL,
                                   .stage = GLSLANG_STAGE_COMPUTE,
                                   .client = GLSLANG_CLIENT_VULKAN,
                                   .client_version = GLSLANG_TARGET_VULKAN_1_2,
                                   .target_language = GLSLANG_TARGET_SPV,
                                   .target_language_version = GLSLANG_TARGET_SPV_1_5,
                                   .code = text,
                                   .default_version = 450,
                                   .default_profile = GLSLANG_NO_PROFILE,
                                   .messages = GLSLANG_MSG_SPV_RULES_BIT | GLSLANG_MSG_VULKAN_RULES_BIT,
                                   .resource = glslang_default_resource()};
    if (r && text && kind == 2 && !strcmp(entry, "main")) {
        r->shader = glslang_shader_create(&input);
        r->program = glslang_program_create();
        r->status = 2;
        if (glslang_shader_preprocess(r->shader, &input) && glslang_shader_parse(r->shader, &input)) {
            glslang_program_add_shader(r->program, r->shader);
            if (glslang_program_link(r->program, GLSLANG_MSG_SPV_RULES_BIT | GLSLANG_MSG_VULKAN_RULES_BIT)) {
                glslang_program_SPIRV_generate(r->program, GLSLANG_STAGE_COMPUTE);
                r->status = 0;
            }
        }
    }
    free(text);
    return r;
}

API(void, shaderc_result_release, (struct shaderc_result * r))
{
    if (r->program)
        glslang_program_delete(r->program);
    if (r->shader)
        glslang_shader_delete(r->shader);
    free(r);
}
API(int, shaderc_result_get_compilation_status, (const struct shaderc_result *r)) { return r->program ? r->status : 1; }
API(size_t, shaderc_result_get_length, (const struct shaderc_result *r)) { return 4 * glslang_program_SPIRV_get_size(r->program); }
API(const char *, shaderc_result_get_bytes, (const struct shaderc_result *r))
{
    return (const char *)glslang_program_SPIRV_get_ptr(r->program);
}
API(const char *, shaderc_result_get_error_message, (const struct shaderc_result *r))
{
    return r->shader ? glslang_shader_get_info_log(r->shader) : "not for this library";
}
