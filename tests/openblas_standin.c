/* A stand-in for OpenBLAS built with OpenMP: its products run on OpenMP's threads, and to set its own number sets OpenMP's. */
#define EXPORT __attribute__((visibility("default")))

EXPORT int openblas_get_num_threads(void);
EXPORT void openblas_set_num_threads(int n);
EXPORT int omp_get_max_threads(void);
EXPORT void omp_set_num_threads(int n);
EXPORT int standin_ran(void);
EXPORT void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                        int ldb, float beta, float *c, int ldc);

static int own = 1, openmp = 1, ran;

int openblas_get_num_threads(void) { return own; }
void openblas_set_num_threads(int n) { own = openmp = n; }
int omp_get_max_threads(void) { return openmp; }
void omp_set_num_threads(int n) { openmp = n; }
int standin_ran(void) { return ran; }

void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                 float beta, float *c, int ldc)
{
    ran = own = openmp;
    c[0] = 42;
}
