/* Sums numbers by three routines, each thread alone, with one selector: select DECISIONS. Prints what was decided. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <tunesmith_runtime.h>

enum { COUNT = 4096, CALLS = 100 };

/* Reads the numbers once. */
static int once(const float *x, float *sum) {
    *sum = 0;
    for (int i = 0; i < COUNT; i++) *sum += x[i];
    return 0;
}

/* Reads them fifty times. */
static int often(const float *x, float *sum) {
    for (int turn = 0; turn < 50; turn++) once(x, sum);
    return 0;
}

/* Cannot do it. */
static int not_at_all(const float *x, float *sum) {
    (void)x, (void)sum;
    return 1;
}

static const char *const NAMES[] = {"not at all", "often", "once"};
static int (*const ROUTINES[])(const float *, float *) = {not_at_all, often, once};

static int fails(const char *what) {
    fprintf(stderr, "%s: %s\n", what, tunesmith_error());
    return 1;
}

static void *work(void *selector) {
    float x[COUNT], sum;
    for (int i = 0; i < COUNT; i++) x[i] = 1;
    for (int i = 0; i < CALLS; i++) {
        tunesmith_call *call;
        size_t at;
        if (tunesmith_selector_begin(selector, "4096", &call, &at)) return "begin";
        int failed = ROUTINES[at](x, &sum);
        if (tunesmith_selector_end(selector, call, failed ? TUNESMITH_FAILED : TUNESMITH_DONE)) return "end";
        if (!failed && sum != COUNT) return "sum";
    }
    return NULL;
}

int main(int argc, char **argv) {
    tunesmith_selector_settings settings;
    tunesmith_selector *selector;
    pthread_t threads[2];
    char *json;
    if (argc != 2) return fails("usage: select DECISIONS");
    tunesmith_selector_defaults(&settings);
    settings.version = "1";
    if (tunesmith_selector_new("sum", NAMES, 3, &settings, &selector)) return fails("new");
    /* There is no file in the first run. */
    if (tunesmith_selector_load(selector, argv[1])) printf("deciding anew\n");
    for (int t = 0; t < 2; t++) pthread_create(&threads[t], NULL, work, selector);
    for (int t = 0; t < 2; t++) {
        void *wrong;
        pthread_join(threads[t], &wrong);
        if (wrong) return fails(wrong);
    }
    if (tunesmith_selector_save(selector, argv[1])) return fails("save");
    if (tunesmith_selector_report(selector, &json)) return fails("report");
    printf("%s\n", json);
    tunesmith_text_free(json);
    tunesmith_selector_free(selector);
    return 0;
}
