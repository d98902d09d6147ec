/* The backends of this build, in order of preference. */
#include "core/registry.h"

extern const struct tern_backend tern_backend_cpu, tern_backend_null;

const struct tern_backend *const tern_backends[] = {&tern_backend_cpu, &tern_backend_null, NULL};
