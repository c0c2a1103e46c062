#ifndef LAUNCHER_OUTPUT_OUTPUT_SLOT_H
#define LAUNCHER_OUTPUT_OUTPUT_SLOT_H

/* The inside of output.c: one worker's two streams, and where their lines go. A slot's
 * life:
 *
 *   FREE ─open─► OPEN ─close─► DRAINING ─both ended─► FLUSHING ─written─► CLOSING
 *    ▲                            │                       │                ▲   │
 *    │                            └─ the bound has passed ┴────────────────┘   │
 *    └──────────────── handles closed, called back ────────────────────────────┘
 *
 * What is known of the program (mode): UNDECIDED lines are held; ENGINE: one file for
 * both streams; FOREIGN: a file for each. */

#include "launcher/output/console.h"
#include "launcher/output/line_filter.h"
#include "launcher/output/line_prefix.h"
#include "launcher/output/output.h"
#include "launcher/output/redirects.h"
#include "launcher/output/tail.h"
#include "launcher/output/writer.h"

#include "common/buf.h"
#include "common/closer.h"

#include <limits.h>
#include <uv.h>

enum {
    OUTPUT_READ_MAX = 64 * 1024,
    OUTPUT_LINE_MAX = 1024 * 1024, /* longer ones are passed on in parts; so are … */
    OUTPUT_LINES_MAX = 32 * 1024 * 1024, /* … those over OUTPUT_READ_MAX beyond this */
    OUTPUT_HELD_MAX = 64 * 1024,
    OUTPUT_SEEN_MAX = 64,
    OUTPUT_QUEUE_MAX = 8 * 1024 * 1024, /* of each writer … */
    OUTPUT_SHARE_MIN = 64 * 1024, /* … and a stream may have so much all the same */
};

enum slot_state { SLOT_FREE, SLOT_OPEN, SLOT_DRAINING, SLOT_FLUSHING, SLOT_CLOSING };
enum slot_mode { MODE_UNDECIDED, MODE_ENGINE, MODE_FOREIGN };

struct stream {
    struct slot *slot;
    uv_poll_t poll;
    int fd;         /* our end; -1: ended */
    bool is_paused; /* a writer is full */
    bool is_cut;    /* … and is waited for no more */
    size_t left;    /* DRAINING: what may still be read */
    bool is_pty;
    bool is_silent;  /* its part has been there for a while */
    struct buf part; /* a line without its end so far */
    bool is_bar;     /* it is begun again and again: passed on as it comes */
    struct console_bar bar;
    struct redirects_route route;
    enum line_place place;       /* teed: of the lines that have the prefix */
    struct writer_file *console; /* its own part of the console's queue */
    struct writer_file *file;    /* FOREIGN, with a log_base */
};

struct slot {
    struct output *output;
    enum slot_state state;
    enum slot_mode mode;
    uint32_t index; /* local rank */
    uint32_t rank;
    uint64_t generation;
    struct stream streams[2]; /* stdout, stderr */
    struct buf held;          /* UNDECIDED: u8 stream, u32 size, bytes; and so on */
    struct writer_file *file; /* ENGINE */
    bool has_refused;
    bool is_at_prompt;    /* a debugger's: it waits for the user … */
    bool has_told_prompt; /* … who was told */
    uv_timer_t timer;     /* the bound on closing */
    uint64_t progress;    /* of the writers, when the timer was started */
    unsigned n_waits;     /* how often it was started */
    uint64_t marks[2];    /* FLUSHING: of the two writers */
    struct closer closer;
    void (*on_closed)(void *arg);
    void *arg;
    /* the large ones: most workers say little, so their pages are best not touched */
    struct tail tail;
    size_t prefix_size;
    char prefix[LINE_PREFIX_MAX]; /* of teed lines */
    char path[PATH_MAX];
};

struct output {
    uv_loop_t *loop;
    bool maybe_engine;
    char *log_base; /* owned; NULL: none */
    bool makes_files_late;
    uint64_t max_size;
    struct redirects redirects;
    char *prefix, *role, *host; /* owned */
    bool prefix_has_time;
    struct line_filter filters[2];
    struct writer_file *filtered[2]; /* of … */
    uint64_t filtered_generation;
    struct slot **slots; /* owned; by local rank; NULL: never used */
    size_t n_slots;
    size_t n_open;             /* slots that are not FREE */
    struct writer *writers[2]; /* files, console */
    struct console consoles[2];
    struct console *console[2]; /* of stdout, of stderr: the same one where they are */
    bool is_terminal[2];        /* stdout, stderr */
    bool is_typed_to;           /* stdin is a terminal, too: the workers' */
    uv_timer_t silence; /* runs while there is a part of a line on a pseudo-terminal */
    bool watches_size;
    uv_signal_t resized;
    void (*on_resized)(void *arg);
    void (*on_cut)(void *arg);
    bool was_cut;
    void *config_arg;
    struct buf lines; /* those being given their prefix */
    uv_async_t wake;
    uv_timer_t timer;  /* the bound on the writers' end */
    uint64_t progress; /* of the writers, when it was started */
    unsigned n_waits;  /* how often it was started */
    struct closer closer;
    bool is_stopping;
    uint64_t seen_generation; /* texts of workers that ended before their hello … */
    uint64_t seen[OUTPUT_SEEN_MAX]; /* … as hashes */
    size_t n_seen;
    void (*on_stopped)(void *arg);
    void *arg;
    char data[OUTPUT_READ_MAX]; /* of one read */
    char kept[PATH_MAX];        /* what was put somewhere last */
};

enum { WRITER_FILES, WRITER_CONSOLE };

/* output_ends.c. The ends are ours, which do not block, and the worker's. */
void ends_look_at_consoles(struct output *o);
void ends_watch_size(struct output *o);
int ends_make(struct slot *s, int out[2], int err[2]) MUST_CHECK;

/* output_lines.c. All but the first with data, and after the first. */
void lines_route(struct slot *s, bool is_engine);
void lines_to_console(struct stream *st, const char *data, size_t size);
void lines_to_filtered(struct stream *st, const char *data, size_t size);
bool lines_are_filtered(const struct stream *st); /* then they should be whole */
void lines_end(struct stream *st); /* on the console: of what has no line's end */
void lines_close_filtered(struct output *o);

/* output_slot.c */
void slot_begin(struct slot *s);
void slot_take(struct stream *st, const char *data, size_t size);
/* A foreign program's: names it in `path`, whether or not there is anything in it yet. */
bool slot_has_folder(struct slot *s);
void slot_pass_part(struct stream *st); /* of a line, though it has no end yet */
void slot_stream_ended(struct stream *st);
void slot_is_engine(struct slot *s, const char *folder);

/* True while a writer that the stream's lines go to has too much of them. */
bool slot_is_held_up(const struct stream *st);

/* Both streams have ended: what was held goes to the console's stderr unless it has
 * refused, or another worker of this generation had the same to say; files are closed.
 */
void slot_end(struct slot *s);

#endif
