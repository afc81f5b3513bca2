// Two models of one file, each on a thread of its own: two_threads MODEL.tsm. Says whether both gave the same.
#include <cstring>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
#include <tunesmith_runtime.h>

static void check(tunesmith_status status) {
    if (status != TUNESMITH_OK) throw std::runtime_error(tunesmith_error());
}

struct Free {
    void operator()(tunesmith_model *model) const { tunesmith_free(model); }
};
using Model = std::unique_ptr<tunesmith_model, Free>;

static Model load(const std::string &path) {
    tunesmith_model *model;
    check(tunesmith_load(path.c_str(), 1, &model));
    return Model(model);
}

// The bytes of the first output for inputs of zeros.
static std::vector<char> outputs(const std::string &path) {
    Model model = load(path);
    for (size_t i = 0; i < tunesmith_input_count(model.get()); i++) {
        tunesmith_tensor input;
        check(tunesmith_input_tensor(model.get(), i, &input));
        std::memset(tunesmith_input(model.get(), i), 0, input.bytes);
    }
    check(tunesmith_invoke(model.get()));
    tunesmith_tensor output;
    check(tunesmith_output_tensor(model.get(), 0, &output));
    const char *data = static_cast<const char *>(tunesmith_output(model.get(), 0));
    return std::vector<char>(data, data + output.bytes);
}

int main(int argc, char **argv) try {
    if (argc != 2) throw std::runtime_error("usage: two_threads MODEL.tsm");
    std::vector<char> results[2];
    std::thread first([&] { results[0] = outputs(argv[1]); });
    results[1] = outputs(argv[1]);
    first.join();
    std::cout << (results[0] == results[1] ? "equal" : "different") << "\n";
    return results[0] == results[1] ? 0 : 1;
} catch (const std::exception &e) {
    std::cerr << e.what() << "\n";
    return 1;
}
