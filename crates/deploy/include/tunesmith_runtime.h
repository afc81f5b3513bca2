/* Runs models that Tunesmith compiled, and chooses among routines of your own: no compiler, no Python, libc only.
 *
 *     tunesmith_model *model;
 *     if (tunesmith_load("model.tsm", 0, &model)) { puts(tunesmith_error()); return 1; }
 *     memcpy(tunesmith_input(model, 0), image, bytes);
 *     if (tunesmith_invoke(model)) { puts(tunesmith_error()); return 1; }
 *     const float *scores = tunesmith_output(model, 0);
 *     tunesmith_free(model);
 *
 * Tensors are dense and row-major. Positions of inputs and outputs are from 0, in the order of the model.
 * States are inputs that keep what an output of the inference before gave; at first they hold values of the model. They count
 * as inputs here, and need no value from you.
 * A compiled model is a program: load only files that you trust.
 *
 * Threads: different models may be used by different threads at once. One model serves one thread at a time; a call
 * while another one runs gives TUNESMITH_BUSY. Texts, shapes and pointers to data hold until the model is freed or another
 * variant is selected, by tunesmith_select or by tunesmith_infer. */
#ifndef TUNESMITH_RUNTIME_H
#define TUNESMITH_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tunesmith_model tunesmith_model;

/* What a call gives. After anything but TUNESMITH_OK, tunesmith_error says why. */
typedef int32_t tunesmith_status;
enum {
    TUNESMITH_OK = 0,
    TUNESMITH_BAD_ARGUMENT = 1, /* a null pointer, a position beyond the last, a text that is not UTF-8 */
    TUNESMITH_CANNOT_LOAD = 2,  /* the file is missing, damaged, of another machine or version, or not written */
    TUNESMITH_CANNOT_RUN = 3,   /* a step failed, such as by an index out of bounds in the data */
    TUNESMITH_BUSY = 4,         /* another thread is in a call with this model */
    TUNESMITH_PANICKED = 5      /* a fault of this library */
};

/* Types of elements. */
typedef int32_t tunesmith_type;
enum {
    TUNESMITH_F32 = 1,
    TUNESMITH_U8 = 2,
    TUNESMITH_I8 = 3,
    TUNESMITH_U16 = 4,
    TUNESMITH_I16 = 5,
    TUNESMITH_I32 = 6,
    TUNESMITH_I64 = 7,
    TUNESMITH_BOOL = 9,
    TUNESMITH_F16 = 10,
    TUNESMITH_F64 = 11,
    TUNESMITH_U32 = 12,
    TUNESMITH_U64 = 13,
    TUNESMITH_BF16 = 16
};

typedef struct {
    const char *name;
    tunesmith_type type;
    size_t rank;
    const size_t *shape; /* rank sizes */
    size_t bytes;
} tunesmith_tensor;

/* The version of this library, such as "0.1.0". */
const char *tunesmith_version(void);

/* Why the last call of this thread failed; "" if none did. It holds until the next failure in this thread. */
const char *tunesmith_error(void);

/* Loads a file .tsm with a pool of so many threads; 0: as many as it was compiled for, or one for each CPU if it does not
 * say. */
tunesmith_status tunesmith_load(const char *path, uint32_t threads, tunesmith_model **model);

/* Frees a model; a null pointer does nothing. */
void tunesmith_free(tunesmith_model *model);

/* The name of the model. */
const char *tunesmith_name(const tunesmith_model *model);

size_t tunesmith_input_count(const tunesmith_model *model);
size_t tunesmith_output_count(const tunesmith_model *model);
tunesmith_status tunesmith_input_tensor(const tunesmith_model *model, size_t input, tunesmith_tensor *tensor);
tunesmith_status tunesmith_output_tensor(const tunesmith_model *model, size_t output, tunesmith_tensor *tensor);

/* A model that was compiled at several sizes has a variant for each; the first one is selected at the beginning. */
size_t tunesmith_variant_count(const tunesmith_model *model);
/* What tells a variant from others, such as "batch=8"; null if there is no such variant. */
const char *tunesmith_variant_label(const tunesmith_model *model, size_t variant);
/* Selects a variant. Shapes and pointers of before no longer hold, nor do they after tunesmith_infer, which selects the
 * variant that runs. */
tunesmith_status tunesmith_select(tunesmith_model *model, size_t variant);

/* Where to write input i and where output i is; null if there is none. No copy is made. */
void *tunesmith_input(tunesmith_model *model, size_t input);
const void *tunesmith_output(const tunesmith_model *model, size_t output);

/* One inference on what the inputs hold. */
tunesmith_status tunesmith_invoke(tunesmith_model *model);

/* Copies the inputs in, runs, and copies the outputs out: as many pointers as there are inputs and outputs. A null pointer for
 * a state means that it keeps what it holds; any other null pointer is an error, and then nothing runs. */
tunesmith_status tunesmith_run(tunesmith_model *model, const void *const *inputs, void *const *outputs);

/* A tensor of the caller, or of a result. */
typedef struct {
    const char *name;
    tunesmith_type type;
    size_t rank;
    const size_t *shape; /* rank sizes */
    const void *data;    /* dense and row-major */
} tunesmith_value;

typedef struct tunesmith_results tunesmith_results;

/* One inference on inputs given by name, in any order. Of a model with several variants the one for the shapes of the inputs
 * runs, padded where the model allows it. The results have their true shapes, also where the data decide these. */
tunesmith_status tunesmith_infer(tunesmith_model *model, const tunesmith_value *inputs, size_t count,
                                 tunesmith_results **results);
size_t tunesmith_results_count(const tunesmith_results *results);
/* Result i, whose pointers hold until the results are freed. */
tunesmith_status tunesmith_result(const tunesmith_results *results, size_t i, tunesmith_value *value);
void tunesmith_results_free(tunesmith_results *results);

/* A selector: which of several routines of your own is fastest is found out while the program runs. For each key, a text of
 * whatever can change the winner, such as "f32 64x64", the routines run in turns; after some rounds the fastest is kept.
 *
 *     tunesmith_call *call;
 *     size_t at;
 *     tunesmith_selector_begin(selector, "64x64", &call, &at);
 *     int failed = routines[at](a, b, c);
 *     tunesmith_selector_end(selector, call, failed ? TUNESMITH_FAILED : TUNESMITH_DONE);
 *
 * Threads may use one selector at once. The thread that begins a call ends it. Selectors that are used meanwhile in this
 * thread are inside of the call, which is not judged while one of them is undecided. */
typedef struct tunesmith_selector tunesmith_selector;
typedef struct tunesmith_call tunesmith_call;

typedef struct {
    size_t rounds;        /* timed calls of each alternative before the decision; at least 1 */
    double prune_speedup; /* an alternative that takes so many times as long as the best is dropped early; above 1 */
    size_t prune_after;   /* complete rounds before that */
    double margin;        /* the first alternative stays unless another takes less by this share; from 0 to below 1 */
    const char *version;  /* of the routines: files of decisions of other versions are refused */
} tunesmith_selector_settings;

/* How a call went. */
typedef int32_t tunesmith_outcome;
enum {
    TUNESMITH_DONE = 0,
    TUNESMITH_FAILED = 1,   /* the alternative is not tried again for this key while another one is left */
    TUNESMITH_DISCARDED = 2 /* the time of this call says nothing */
};

/* The usual settings, with an empty version. */
void tunesmith_selector_defaults(tunesmith_selector_settings *settings);

/* A selector among alternatives of these names, the first of which is the default. Without settings, the usual ones. */
tunesmith_status tunesmith_selector_new(const char *name, const char *const *alternatives, size_t count,
                                        const tunesmith_selector_settings *settings, tunesmith_selector **selector);
void tunesmith_selector_free(tunesmith_selector *selector);

/* Begins a call, which is timed from here on: the position of the alternative to run, and what ends the call. */
tunesmith_status tunesmith_selector_begin(const tunesmith_selector *selector, const char *key, tunesmith_call **call,
                                          size_t *alternative);
/* Ends a call, which no longer exists then. After TUNESMITH_BAD_ARGUMENT it has not ended. */
tunesmith_status tunesmith_selector_end(const tunesmith_selector *selector, tunesmith_call *call,
                                        tunesmith_outcome outcome);

/* What was found so far, as a JSON text that tunesmith_text_free frees. */
tunesmith_status tunesmith_selector_report(const tunesmith_selector *selector, char **json);
void tunesmith_text_free(char *text);

/* Keys that the file knows start decided, unless they were met before. A file of another machine, number of CPUs or version
 * is refused: TUNESMITH_CANNOT_LOAD. */
tunesmith_status tunesmith_selector_load(const tunesmith_selector *selector, const char *path);
/* Writes what was decided. Decisions of other selectors stay in the file, if they hold here. */
tunesmith_status tunesmith_selector_save(const tunesmith_selector *selector, const char *path);

#ifdef __cplusplus
}
#endif

#endif
