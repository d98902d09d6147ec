/* Options of a command: getopt_long's tables and the help page, both made from the command's rows. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "command.h"

#define MOST_OPTS 96
#define LONG_ID 256 /* getopt's value of row i is LONG_ID + i, that of a letter the letter */

/* All rows of a command, in order; returns their number. */
static int all_rows(const struct command *command, const struct opt *rows[MOST_OPTS])
{
    int n = 0;
    for (int t = 0; command->opts[t]; t++)
        for (const struct opt *o = command->opts[t]; o->name && n < MOST_OPTS; o++)
            rows[n++] = o;
    return n;
}

static void help_line(const struct opt *o)
{
    char left[64], letter[8] = "    ";
    if (o->letter)
        snprintf(letter, sizeof(letter), "-%c, ", o->letter);
    snprintf(left, sizeof(left), "  %s--%s %s", letter, o->name, o->value ? o->value : "");
    printf("%-27s ", left);
    for (const char *c = o->help; *c; c++)
        if (*c == '\n')
            printf("\n%28s", "");
        else
            putchar(*c);
    putchar('\n');
}

void options_help(const struct command *command)
{
    static const struct opt help_row = {0, 'h', "help", NULL, "this page"};
    const struct opt *rows[MOST_OPTS];
    int n = all_rows(command, rows);
    printf("usage: tern %s [OPTIONS]%s%s\n\n%s\n\n", command->name, *command->arguments ? " " : "", command->arguments, command->summary);
    for (int i = 0; i < n; i++)
        help_line(rows[i]);
    help_line(&help_row);
    if (command->notes)
        printf("\n%s", command->notes);
}

/* The letter that getopt did not know: of a character of several bytes it knows the first one alone, and its word tells the rest. "?" for
 * one that cannot be shown. */
static void read_letter(char *const *argv, char out[5])
{
    const char byte = (char)optopt;
    snprintf(out, 5, "%c", byte > ' ' && byte < 127 ? byte : '?');
    for (int i = 0; i < 2 && byte & 0x80; i++) { /* getopt stands at the word, or behind it where that was its last byte */
        const char *at = argv[optind - i];
        while (at && *at && !(*at & 0x80))
            at++;
        for (size_t n = 2; at && *at == byte && n <= 4 && at[n - 1]; n++) {
            json_t *whole = json_stringn(at, n); /* NULL when it is no UTF-8 */
            if (whole) {
                snprintf(out, 5, "%s", json_string_value(whole));
                json_decref(whole);
                return;
            }
        }
    }
}

/* What getopt could not take. optopt is the letter, or the value of a long option, or 0 when there is no such long one. */
static int complain(const struct command *command, const struct opt *const *rows, int found, char *const *argv)
{
    char letter[5];
    if (found == ':' && optopt >= LONG_ID)
        return usage("option --%s: a value is missing; see 'tern %s --help'", rows[optopt - LONG_ID]->name, command->name);
    if (found == ':')
        return usage("option -%c: a value is missing; see 'tern %s --help'", optopt, command->name);
    if (optopt >= LONG_ID || optopt == 'h')
        return usage("option --%s: takes no value", optopt == 'h' ? "help" : rows[optopt - LONG_ID]->name);
    if (!optopt)
        return usage("unknown or ambiguous option %s; 'tern %s --help' lists them", argv[optind - 1], command->name);
    read_letter(argv, letter);
    return usage("unknown option -%s; 'tern %s --help' lists them, and '--' stands before an argument that begins with '-'", letter,
                 command->name);
}

/* A command's rows as getopt_long has them. */
struct table {
    const struct opt *rows[MOST_OPTS];
    struct option longs[MOST_OPTS + 2];
    char letters[2 * MOST_OPTS + 4];
    int of_letter[128];
};

static void fill_table(const struct command *command, struct table *t)
{
    *t = (struct table){.letters = ":h"};
    int n = all_rows(command, t->rows);
    for (int i = 0; i < n; i++) {
        const struct opt *o = t->rows[i];
        t->longs[i] = (struct option){o->name, o->value ? required_argument : no_argument, NULL, LONG_ID + i};
        if (!o->letter)
            continue;
        t->of_letter[o->letter & 127] = i;
        snprintf(t->letters + strlen(t->letters), 3, "%c%s", o->letter, o->value ? ":" : "");
    }
    t->longs[n] = (struct option){"help", no_argument, NULL, 'h'};
}

/* Whether --json is there: errors of the options before it are events, too. Asked of getopt, which takes --js and knows a value. */
static bool wants_events(const struct table *t, int argc, char **argv)
{
    bool json = false;
    for (int found; (found = getopt_long(argc, argv, t->letters, t->longs, NULL)) != -1;)
        json = json || (found >= LONG_ID && t->rows[found - LONG_ID]->id == OPT_JSON);
    optind = 0; /* getopt begins anew */
    return json;
}

int options_parse(const struct command *command, int argc, char **argv, void *settings, char ***arguments, int *count)
{
    struct table t;
    fill_table(command, &t);
    opterr = 0;
    message_setup(command->name, wants_events(&t, argc, argv));
    for (int found; (found = getopt_long(argc, argv, t.letters, t.longs, NULL)) != -1;) {
        if (found == 'h') {
            options_help(command);
            return DONE;
        }
        if (found == '?' || found == ':')
            return complain(command, t.rows, found, argv);
        const struct opt *opt = t.rows[found >= LONG_ID ? found - LONG_ID : t.of_letter[found & 127]];
        int code = command->apply(opt, optarg, settings);
        if (code != GO_ON)
            return code;
    }
    *arguments = argv + optind;
    *count = argc - optind;
    if (*count < command->least || *count > command->most)
        return usage("expected %s, found %d argument%s; see 'tern %s --help'", *command->arguments ? command->arguments : "no argument",
                     *count, *count == 1 ? "" : "s", command->name);
    return GO_ON;
}
