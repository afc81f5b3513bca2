/* The best class of an image: classify MODEL.tsm IMAGE.f32, whose file has the elements of the first input. */
#include <stdio.h>
#include <tunesmith_runtime.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, tunesmith_error());
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL.tsm IMAGE.f32\n", argv[0]);
        return 2;
    }
    tunesmith_model *model;
    tunesmith_tensor image, scores;
    if (tunesmith_load(argv[1], 0, &model)) return failed(argv[1]);
    if (tunesmith_input_tensor(model, 0, &image)) return failed("input");
    if (tunesmith_output_tensor(model, 0, &scores)) return failed("output");
    FILE *file = fopen(argv[2], "rb");
    if (!file || fread(tunesmith_input(model, 0), 1, image.bytes, file) != image.bytes) {
        fprintf(stderr, "%s does not have the %zu bytes of %s\n", argv[2], image.bytes, image.name);
        return 1;
    }
    fclose(file);
    if (tunesmith_invoke(model)) return failed("run");
    const float *score = tunesmith_output(model, 0);
    size_t best = 0;
    for (size_t i = 1; i < scores.bytes / sizeof *score; i++)
        if (score[i] > score[best]) best = i;
    printf("%s: class %zu of %zu, score %g\n", tunesmith_name(model), best, scores.bytes / sizeof *score, score[best]);
    tunesmith_free(model);
    return 0;
}
