/* Build-time program: turns a file into a C source with its bytes.
 * usage: embed INPUT OUTPUT NAME    defines NAME[] and NAME_size */
#include <stdio.h>

static int copy(FILE *in, FILE *out, const char *name)
{
    unsigned long size = 0;
    int c;
    fprintf(out, "/* Made by tools/embed.c; do not edit. */\nextern const unsigned char %s[];\nextern const unsigned long %s_size;\n", name,
            name);
    fprintf(out, "const unsigned char %s[] = {", name);
    for (; (c = getc(in)) != EOF; size++)
        fprintf(out, "%s%d,", size % 32 ? "" : "\n", c);
    fprintf(out, "\n};\nconst unsigned long %s_size = %lu;\n", name, size);
    return ferror(in) || !size;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: embed INPUT OUTPUT NAME\n");
        return 2;
    }
    FILE *in = fopen(argv[1], "rb");
    if (!in) {
        perror(argv[1]);
        return 1;
    }
    FILE *out = fopen(argv[2], "w");
    if (!out) {
        perror(argv[2]);
        fclose(in);
        return 1;
    }
    int bad = copy(in, out, argv[3]);
    fclose(in);
    if (fclose(out) || bad) {
        fprintf(stderr, "%s: could not be written from %s\n", argv[2], argv[1]);
        return 1;
    }
    return 0;
}
