#include "launcher/options/completion.h"

#include "launcher/verbs/verb_options.h"

#include "common/buf.h"

#include <ctype.h>
#include <string.h>

enum { SCRIPT_MAX = 1024 * 1024 };

PRINTF_LIKE(2, 3) static void put(struct buf *out, const char *fmt, ...)
{
    va_list ap;
    int rv;

    va_start(ap, fmt);
    rv = buf_vprintf(out, fmt, ap);
    va_end(ap);
    ASSERT(rv == 0); /* a table of ours is small */
}

static char *finish(struct buf *out)
{
    put(out, "%c", 0);
    return (char *)out->data; /* nothing was consumed: the text begins there */
}

/* The next of a value's words, as "gpu" of "N|auto|gpu": those that are meant as they
 * stand are in small letters. NULL: there is none. */
static const char *next_word(const char **at, size_t *ret_len)
{
    while (**at != '\0') {
        const char *word = *at;
        size_t len = strcspn(word, "|");

        *at += len;
        *at += **at == '|';
        if (islower((unsigned char)word[0])) {
            *ret_len = len;
            return word;
        }
    }
    return NULL;
}

static void put_words(struct buf *out, const char *value)
{
    const char *before = "";
    const char *word;
    size_t len;

    while ((word = next_word(&value, &len)) != NULL) {
        put(out, "%s%.*s", before, (int)len, word);
        before = " ";
    }
}

static bool has_words(const char *value)
{
    size_t len;

    return next_word(&value, &len) != NULL;
}

/* --- bash --- */

/* A word of the line is the program if no option before it takes it. bash takes the '='
 * of --x=v for a word of its own. */
static const char bash_verbs[] =
    "    if ((COMP_CWORD > 1)) && _ctrun_verb \"${COMP_WORDS[1]}\"; then\n"
    "        COMPREPLY=()\n"
    "        [[ $cur == -* ]] && mapfile -t COMPREPLY < <(compgen -W \"$options\" -- "
    "\"$cur\")\n"
    "        return\n"
    "    fi\n";

static const char bash_tail[] =
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        if [[ ${COMP_WORDS[i]} != -* ]]; then\n"
    "            COMPREPLY=()\n"
    "            return\n"
    "        fi\n"
    "        [[ ${COMP_WORDS[i]} == -- ]] && break\n"
    "        if [[ ${COMP_WORDS[i+1]} == '=' ]]; then\n"
    "            ((i += 2))\n"
    "        elif [[ \" $valued \" == *\" ${COMP_WORDS[i]} \"* ]]; then\n"
    "            ((i++))\n"
    "        fi\n"
    "    done\n"
    "    [[ $cur == '=' ]] && cur=\n"
    "    [[ $prev == '=' ]] && prev=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    if ((i > COMP_CWORD)) || [[ ${COMP_WORDS[COMP_CWORD]} == '=' ]]; then\n"
    "        words=; folders=\n"
    "        _ctrun_value \"$prev\"\n"
    "        if [[ $folders ]]; then\n"
    "            mapfile -t COMPREPLY < <(compgen -d -- \"$cur\")\n"
    "        else\n"
    "            mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
    "        fi\n"
    "    elif [[ $cur == -* ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
    "    else\n"
    "        ((COMP_CWORD > 1)) && verbs=\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$verbs\" -- \"$cur\"\n"
    "            compgen -A command -A file -- \"$cur\")\n"
    "    fi\n"
    "}\n"
    "complete -o default -F _ctrun ctrun\n";

static void put_bash_value(struct buf *out, const struct option_spec *spec)
{
    bool is_folder = spec->value && strcmp(spec->value, "DIR") == 0;

    if (!spec->set || !spec->value || (!is_folder && !has_words(spec->value))) {
        return;
    }
    put(out, "    --%s", spec->name);
    if (spec->letter != 0) {
        put(out, " | -%c", spec->letter);
    }
    if (is_folder) {
        put(out, ") folders=1 ;;\n");
        return;
    }
    put(out, ") words='");
    put_words(out, spec->value);
    put(out, "' ;;\n");
}

static void put_names(struct buf *out, const struct options *options, bool valued_only)
{
    const char *before = "";

    for (size_t i = 0; i < options->n; i++) {
        const struct option_spec *spec = &options->specs[i];

        if (!spec->set || (valued_only && !spec->value)) {
            continue;
        }
        put(out, "%s--%s", before, spec->name);
        before = " ";
        if (spec->letter != 0) {
            put(out, " -%c", spec->letter);
        }
    }
}

/* … and those that have no table here. */
static void put_verb_names(struct buf *out, struct verb_list verbs)
{
    for (size_t i = 0; i < verbs.n; i++) {
        put(out, "%s ", verbs.verb[i].name);
    }
    put(out, "run ckpt keygen");
}

/* Sets `options` of a verb; fails for other words. */
static void put_bash_verbs(struct buf *out, struct verb_list verbs)
{
    put(out, "_ctrun_verb() {\n    case $1 in\n");
    for (size_t i = 0; i < verbs.n; i++) {
        put(out, "    %s) options='", verbs.verb[i].name);
        put_names(out, &verbs.verb[i].options, false);
        put(out, "' ;;\n");
    }
    put(out, "    *) return 1 ;;\n    esac\n}\n");
}

char *completion_bash(const struct options *options, struct verb_list verbs)
{
    struct buf out;

    buf_init(&out, SCRIPT_MAX);
    put(&out, "# bash completion for ctrun: source it, or put it as ctrun into\n"
              "# ~/.local/share/bash-completion/completions\n"
              "_ctrun_value() {\n    case $1 in\n");
    for (size_t i = 0; i < options->n; i++) {
        put_bash_value(&out, &options->specs[i]);
    }
    put(&out, "    esac\n}\n");
    put_bash_verbs(&out, verbs);
    put(&out,
        "_ctrun() {\n"
        "    local i words folders\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
        "    local options='");
    put_names(&out, options, false);
    put(&out, "'\n    local valued='");
    put_names(&out, options, true);
    put(&out, "'\n    local verbs='");
    put_verb_names(&out, verbs);
    put(&out, "'\n%s%s", bash_verbs, bash_tail);
    return finish(&out);
}

/* --- zsh --- */

/* In single quotes, where [, ] and : mean something. */
static void put_zsh_text(struct buf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\'') {
            put(out, "'\\''");
        } else if (strchr("[]:\\", text[i])) {
            put(out, "\\%c", text[i]);
        } else {
            put(out, "%c", text[i]);
        }
    }
}

/* The first sentence, or what stands before its brackets. */
static size_t first_sentence(const char *help)
{
    const char *end = strstr(help, ". ");
    const char *bracket = strstr(help, " (");
    size_t len = end ? (size_t)(end - help) : strlen(help);

    if (bracket && (size_t)(bracket - help) < len) {
        len = (size_t)(bracket - help);
    }
    return len > 0 && help[len - 1] == '.' ? len - 1 : len;
}

static void put_zsh_option(struct buf *out, const struct option_spec *spec)
{
    const char *equals = spec->value ? "=" : "";

    if (spec->letter != 0) {
        put(out, "  '(-%c --%s)'{-%c%s,--%s%s}'[", spec->letter, spec->name,
            spec->letter, spec->value ? "+" : "", spec->name, equals);
    } else {
        put(out, "  '--%s%s[", spec->name, equals);
    }
    put_zsh_text(out, spec->help, first_sentence(spec->help));
    put(out, "]");
    if (spec->value) {
        put(out, ":");
        put_zsh_text(out, spec->value, strlen(spec->value));
        put(out, ":");
        if (strcmp(spec->value, "DIR") == 0) {
            put(out, "_files -/");
        } else if (has_words(spec->value)) {
            put(out, "(");
            put_words(out, spec->value);
            put(out, ")");
        }
    }
    put(out, "' \\\n");
}

static void put_zsh_options(struct buf *out, const struct options *options)
{
    put(out, "_arguments -s -S \\\n");
    for (size_t i = 0; i < options->n; i++) {
        if (options->specs[i].set) {
            put_zsh_option(out, &options->specs[i]);
        }
    }
}

/* A verb is a command of its own. */
static void put_zsh_verbs(struct buf *out, struct verb_list verbs)
{
    put(out, "if (( CURRENT > 2 )); then\ncase $words[2] in\n");
    for (size_t i = 0; i < verbs.n; i++) {
        put(out, "%s)\nwords=(\"${(@)words[2,-1]}\"); (( CURRENT-- ))\n",
            verbs.verb[i].name);
        put_zsh_options(out, &verbs.verb[i].options);
        put(out, "  '*:: :'\nreturn ;;\n");
    }
    put(out, "esac\nfi\n");
}

char *completion_zsh(const struct options *options, struct verb_list verbs)
{
    struct buf out;

    buf_init(&out, SCRIPT_MAX);
    put(&out,
        "#compdef ctrun\n# zsh completion for ctrun: put it as _ctrun into a folder "
        "of $fpath\n");
    put_zsh_verbs(&out, verbs);
    put_zsh_options(&out, options);
    put(&out, "  '(-):program:{ (( CURRENT == 2 )) && compadd -- ");
    put_verb_names(&out, verbs);
    put(&out, "; _command_names -e; _files }' \\\n"
              "  '*::arguments:_files'\n");
    return finish(&out);
}

/* --- the man page --- */

static void put_man_escaped(struct buf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        put(out, strchr("_*\\", text[i]) ? "\\%c" : "%c", text[i]);
    }
}

/* Capitals stand for something, and what is in small letters for itself. */
static void put_man_value(struct buf *out, const char *value)
{
    static const char capitals[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    static const char small[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

    while (*value != '\0') {
        size_t len = strspn(value, capitals);
        const char *mark = "_";

        if (len == 0) {
            len = strspn(value, small);
            mark = "*";
        }
        if (len == 0) {
            len = 1;
            mark = "";
        }
        put(out, "%s", mark);
        put_man_escaped(out, value, len);
        put(out, "%s", mark);
        value += len;
    }
}

/* Names of options are bold. */
static void put_man_text(struct buf *out, const char *text)
{
    static const char name[] = "abcdefghijklmnopqrstuvwxyz-";

    while (*text != '\0') {
        size_t len = strcspn(text, " ");
        size_t bold = strncmp(text, "--", 2) == 0 ? strspn(text, name) : 0;

        if (bold > 2) {
            put(out, "*%.*s*", (int)bold, text);
        } else {
            bold = 0;
        }
        put_man_escaped(out, text + bold, len - bold);
        text += len;
        len = strspn(text, " ");
        put(out, "%s", len > 0 ? " " : "");
        text += len;
    }
}

static void put_man_option(struct buf *out, const struct option_spec *spec)
{
    if (spec->letter != 0) {
        put(out, "*-%c*, ", spec->letter);
    }
    put(out, "*--%s*", spec->name);
    if (spec->value) {
        put(out, " ");
        put_man_value(out, spec->value);
    }
    put(out, "\n\t");
    put_man_text(out, spec->help);
    if (spec->more) {
        put(out, " ");
        put_man_text(out, spec->more);
    }
    put(out, "\n\n");
}

static bool has_option(const struct options *options, const struct option_spec *spec)
{
    for (size_t i = 0; i < options->n; i++) {
        if (strcmp(options->specs[i].name, spec->name) == 0) {
            return true;
        }
    }
    return false;
}

static bool have_all(struct verb_list verbs, const struct option_spec *spec)
{
    for (size_t i = 0; i < verbs.n; i++) {
        if (!has_option(&verbs.verb[i].options, spec)) {
            return false;
        }
    }
    return true;
}

/* Those that all verbs have, or that only some have. */
static void put_man_options(struct buf *out, struct verb_list verbs,
                            const struct options *options, bool are_everybodys)
{
    for (size_t i = 0; i < options->n; i++) {
        if (have_all(verbs, &options->specs[i]) == are_everybodys) {
            put_man_option(out, &options->specs[i]);
        }
    }
}

static void put_man_verbs(struct buf *out, struct verb_list verbs)
{
    for (size_t i = 0; i < verbs.n; i++) {
        const struct verb *v = &verbs.verb[i];

        put(out, "## %s %s\n\n", v->options.program, v->operands);
        put_man_text(out, v->summary);
        if (v->more) {
            put(out, " ");
            put_man_text(out, v->more);
        }
        put(out, "\n\n");
        put_man_options(out, verbs, &v->options, false);
    }
    put(out, "## Options of these verbs\n\n");
    put_man_options(out, verbs, &verbs.verb[0].options, true);
}

char *completion_man(const struct options *options, struct verb_list verbs)
{
    struct buf out;

    buf_init(&out, SCRIPT_MAX);
    for (size_t i = 0; i < options->n; i++) {
        if (options->specs[i].set) {
            put_man_option(&out, &options->specs[i]);
        }
    }
    if (verbs.n > 0) {
        put(&out, "# VERBS\n\n");
        put_man_verbs(&out, verbs);
    }
    return finish(&out);
}
