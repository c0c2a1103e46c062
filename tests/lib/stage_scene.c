/* Scenes: each is played as it is, and again with the service killed at every place. */

#include "tests/lib/stage_core.h"

#include <stdint.h>

/* False when the scene has no such place. */
static bool play_once(const struct scene *scene, struct stage_kill kill)
{
    struct stage *st = stage_new();
    unsigned n_played = 0;
    bool is_there = true;

    if (scene->before) {
        is_there = stage_play_with(st, scene->before, kill, &n_played);
        is_there = is_there || (!st->is_timed && n_played < kill.after);
    }
    if (is_there) {
        is_there = stage_play_with(st, scene->script, kill, &n_played);
    }
    stage_free(st);
    return is_there;
}

static void play_scene(void **state)
{
    const struct scene *scene = *state;
    struct stage_kill kill = {0};

    (void)play_once(scene, kill);
    do {
        kill.after += kill.is_deaf || kill.after == 0;
        kill.is_deaf = !kill.is_deaf;
    } while (play_once(scene, kill));
}

struct CMUnitTest stage_scene(const struct scene *scene)
{
    return (struct CMUnitTest){scene->name, play_scene, NULL, NULL,
                               (void *)(uintptr_t)scene};
}
