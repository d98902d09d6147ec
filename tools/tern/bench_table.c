/* Tables of `tern bench` and the numbers in them. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static void text_row(const struct bench_table *t, const char *const *cells)
{
    for (int i = 0; t->columns[i].title; i++) {
        int width = t->columns[i].width;
        const char *text = cells ? cells[i] : t->columns[i].title;
        bool last = !t->columns[i + 1].title;
        if (width < 0 && last)
            printf("%s", text);
        else
            printf("%*s%s", width, text, last ? "" : "  ");
    }
    putchar('\n');
}

static void markdown_row(const struct bench_table *t, const char *const *cells)
{
    for (int i = 0; t->columns[i].title; i++)
        printf("| %s ", cells ? cells[i] : t->columns[i].title);
    puts("|");
}

void bench_table_head(const struct bench_table *t)
{
    if (t->silent)
        return;
    if (!t->markdown) {
        text_row(t, NULL);
        return;
    }
    markdown_row(t, NULL);
    for (int i = 0; t->columns[i].title; i++)
        printf("%s", t->columns[i].width < 0 ? "|---" : "|---:");
    puts("|");
}

void bench_table_row(const struct bench_table *t, const char *const *cells)
{
    if (!t->silent)
        (t->markdown ? markdown_row : text_row)(t, cells);
    output_flush();
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct bench_stat bench_stat(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), compare);
    return (struct bench_stat){n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2, values[0], values[n - 1]};
}
