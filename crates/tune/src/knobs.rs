//! Every knob, declared once: name, type, default, what it does, where the default comes
//! from, and whether the knob changes generated code.
//!
//! [`crate::Options::new`], the flags of the command line, their `--help` and the command
//! `knobs` all read this table.

/// A setting that a user may change: the flag of the same name.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    pub name: &'static str,
    /// What values it takes, such as `count` or `on, off, auto`.
    pub kind: &'static str,
    /// A value, or where that depends on the machine or on other knobs, the rule.
    pub default: &'static str,
    /// What it does, as a sentence without its end.
    pub doc: &'static str,
    /// Where the default comes from.
    pub source: &'static str,
    pub affects_code: bool,
}

/// The knob of a name.
///
/// # Panics
/// If there is none: names are written in the program alone, and tests read them all.
pub fn knob(name: &str) -> &'static Knob {
    let found = KNOBS.iter().find(|k| k.name == name);
    found.unwrap_or_else(|| panic!("there is no knob --{name}"))
}

/// Reads a default that is a number.
pub(crate) fn number<T: std::str::FromStr>(knob: &Knob) -> T {
    let parsed = knob.default.parse().ok();
    parsed.unwrap_or_else(|| panic!("the default of --{} is a number", knob.name))
}

/// The default of `keep-columns` in bytes.
pub fn columns_bytes() -> u64 {
    number::<u64>(knob("keep-columns")) * 1_000_000
}

/// Nothing that was measured or published says that another value is worse.
const OWN_CHOICE: &str = "our choice";

/// Every knob.
pub static KNOBS: &[Knob] = &[
    Knob {
        name: "time",
        kind: "duration",
        default: "1m",
        doc: "Time for the whole command, the compiled model included",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "plain",
        kind: "on, off",
        default: "off",
        doc: "Also run the model under plain schedules, which takes long, and report how much slower that is",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "trials",
        kind: "count",
        default: "none: --time decides",
        doc: "Stop after this many candidates, whatever the time. Those that fail to build or to run count; those that are known already or dropped by filters do not",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "energy",
        kind: "joules",
        default: "none: --time decides",
        doc: "Energy for the whole command, such as 50kJ or 20Wh. The run ends when that will be used up at its power so far; where power is estimated, by the larger estimate",
        source: "ADR 0041",
        affects_code: false,
    },
    Knob {
        name: "cost",
        kind: "amount",
        default: "none: --time decides",
        doc: "Money for the whole command, in the currency of the machine file: it buys time at the price there",
        source: "ADR 0041",
        affects_code: false,
    },
    Knob {
        name: "machine-file",
        kind: "file",
        default: "machine.json beside the store, else usual power and no price",
        doc: "What this machine draws, as watts over busy CPUs, and what an hour of it costs",
        source: "ADR 0041",
        affects_code: false,
    },
    Knob {
        name: "fraction",
        kind: "share",
        default: "0.667",
        doc: "With `records label`: the share of a task's candidates that the usual latency at one of them is drawn from",
        source: "ADR 0041: Cleveland's default; Trimmer does not say",
        affects_code: false,
    },
    Knob {
        name: "passes",
        kind: "count",
        default: "3",
        doc: "With `records label`: how often the curve is fitted again with less weight on outliers; 0 is once without",
        source: "ADR 0041: Cleveland's default; Trimmer does not say",
        affects_code: false,
    },
    Knob {
        name: "strategy",
        kind: "annealing, ansor, bayesian, droplet, evolutionary, es, funnel, genetic, grid, kernel-tuner-annealing, kernel-tuner-genetic, q-learning, random, reinforcement, reinforcement-plain",
        default: "funnel",
        doc: "Who proposes candidates. evolutionary: children of the best; es: evolution strategies, a distribution for each sketch that moves to what costs little; funnel: many candidates evolve on a model that learns from the answers, and the best are asked for; annealing: chains on such a model; ansor: rounds of 64 by the evolution that the paper of that name has; bayesian: the most expected improvement by a Gaussian process; genetic: generations of 100; droplet: neighbours of the best, along one decision each; grid: every point by its number; kernel-tuner-annealing and kernel-tuner-genetic: as in the program of that name, without a model; reinforcement: an agent learns to walk on such a model, and one of each cluster of its proposals is asked for; reinforcement-plain: the same without clusters; q-learning: steps from good points, chosen by a network; random: anything",
        source: "ADR 0039: on twelve operators funnel needs the fewest candidates to come within 2% and 5% of the best",
        affects_code: false,
    },
    Knob {
        name: "evaluate",
        kind: "timed, static, simulate",
        default: "timed",
        doc: "Who says how good a candidate is. timed: it is run and measured; static: its loops and machine code are read, nothing is run, and only the best are measured in the end; simulate: likewise, but its accesses are simulated",
        source: "ADR 0034, ADR 0040",
        affects_code: false,
    },
    Knob {
        name: "cpu",
        kind: "name",
        default: "one with the target's caches",
        doc: "With --evaluate simulate: the processor whose caches are simulated, such as cortex-a72, neoverse-v2 or spacemit-x60",
        source: "ADR 0040",
        affects_code: false,
    },
    Knob {
        name: "predictor",
        kind: "name or file",
        default: "none",
        doc: "With --evaluate simulate: a predictor of times, by its name in `simulate predictors` or by the file that `simulate train` made; its score takes the place of a count",
        source: "ADR 0040",
        affects_code: false,
    },
    Knob {
        name: "minimise",
        kind: "name",
        default: "weighted",
        doc: "With --evaluate simulate: the count that is the score, such as instructions, l1d.read.misses or llc_misses; weighted adds misses to instructions by what they cost",
        source: "ADR 0040",
        affects_code: false,
    },
    Knob {
        name: "simulator",
        kind: "command",
        default: "none",
        doc: "The command of another simulator, such as 'my-simulator {exe}'. It gets a candidate as an executable of one thread, and prints lines of a name and a number. With {out} in it, it leaves gem5's stats.txt in that folder instead",
        source: "ADR 0040",
        affects_code: false,
    },
    Knob {
        name: "simulator-limit",
        kind: "duration",
        default: "60s",
        doc: "Time that --simulator may take for one candidate",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "window",
        kind: "name",
        default: "static",
        doc: "Candidates whose means a predictor compares others with: static, the first 64 of a task; a number, the first so many; dynamic, all so far, and earlier ones get new scores",
        source: "Instruction-accurate simulators, section III-D",
        affects_code: false,
    },
    Knob {
        name: "sample-iterations",
        kind: "count",
        default: "all",
        doc: "Simulate one in so many iterations of outer loops for all; the error is estimated",
        source: "ADR 0040",
        affects_code: false,
    },
    Knob {
        name: "score-cpu",
        kind: "name",
        default: "this machine's, or the usual one of another target",
        doc: "The processor whose cycles and cache lines a static score counts, by LLVM's name, such as znver4 or neoverse-v2",
        source: "ADR 0034",
        affects_code: false,
    },
    Knob {
        name: "rates",
        kind: "file",
        default: "what `calibrate` wrote beside the store for this machine, else the usual rates",
        doc: "What each count of a static score costs: a file that `calibrate` wrote, such as --rates server.json",
        source: "ADR 0034",
        affects_code: false,
    },
    Knob {
        name: "read-time",
        kind: "duration",
        default: "a tenth of --time, at most 10s; none with --trials",
        doc: "Time for reading candidates of all models before any is measured, at most a quarter of what is left; those that are predicted to be the fastest are measured first",
        source: "ADR 0034",
        affects_code: false,
    },
    Knob {
        name: "export-top",
        kind: "count or percent",
        default: "1",
        doc: "With --evaluate static or simulate, and --export-to or a target that does not run here: candidates of each task that --json lists with their traces and --export-to exports, those first that are predicted to be the fastest; 3% is that share of those that have a score",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "keep-alternatives",
        kind: "count",
        default: "1",
        doc: "Kernels that the model keeps for each step, for `run` and `bench --select online`: of different algorithms with `compile`, the chosen one and finalists with `tune`, and of neighbouring steps together other layouts with both",
        source: "ADR 0036",
        affects_code: false,
    },
    Knob {
        name: "keep-columns",
        kind: "megabytes",
        default: "256",
        doc: "With --keep-alternatives and a training step: room for the columns of images that all convolutions together may keep for their weight gradients, the smallest ones first; 0 keeps none. A model has that room until it has decided",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "alternatives",
        kind: "PREFIX,...",
        default: "none",
        doc: "Algorithms of which `compile` keeps one kernel for each step that has them, behind the best known one, such as im2row,convgemm,direct,winograd2,winograd4; `tasks --json` lists the names",
        source: "ADR 0036",
        affects_code: false,
    },
    Knob {
        name: "learning-rate",
        kind: "number",
        default: "0.01",
        doc: "With --train: what a weight loses of its velocity",
        source: "ADR 0037",
        affects_code: true,
    },
    Knob {
        name: "momentum",
        kind: "number",
        default: "0.9",
        doc: "With --train: what a velocity keeps of itself; it adds the gradient",
        source: "ADR 0037",
        affects_code: true,
    },
    Knob {
        name: "weight-decay",
        kind: "number",
        default: "0",
        doc: "With --train: what of the weight is added to its gradient",
        source: "ADR 0037",
        affects_code: true,
    },
    Knob {
        name: "dropout-seed",
        kind: "number",
        default: "0",
        doc: "With --train: what the masks of dropouts are drawn by; equal seeds give equal steps",
        source: "ADR 0037",
        affects_code: true,
    },
    Knob {
        name: "train-only",
        kind: "pattern",
        default: "all parameters",
        doc: "With --train: trains only constants of this name, in which * stands for any characters; may be given several times",
        source: "ADR 0037",
        affects_code: true,
    },
    Knob {
        name: "freeze",
        kind: "pattern",
        default: "none",
        doc: "With --train: does not train constants of this name, in which * stands for any characters; may be given several times",
        source: "ADR 0037",
        affects_code: true,
    },
    Knob {
        name: "select",
        kind: "first, online, each",
        default: "first",
        doc: "Which alternative of a step runs, in models that have several. first: the first one; online: all are tried while the model runs, and the fastest is kept; each: `bench` also measures each position for itself",
        source: "ADR 0036",
        affects_code: false,
    },
    Knob {
        name: "choose",
        kind: "default, static",
        default: "default",
        doc: "What `compile` takes for tasks that nothing was measured of. default: the default schedule; static: candidates are read for --choose-time, and the one that is predicted to be fastest is taken if it is clearly better",
        source: "ADR 0034",
        affects_code: true,
    },
    Knob {
        name: "choose-time",
        kind: "duration",
        default: "10s",
        doc: "How long `compile --choose static` reads candidates",
        source: OWN_CHOICE,
        affects_code: true,
    },
    Knob {
        name: "objective",
        kind: "gains, sum",
        default: "gains",
        doc: "What several models are tuned for together. gains: the geometric mean of their gains; sum: the sum of their latencies",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "wanted",
        kind: "durations",
        default: "none",
        doc: "With several models: a time for each, in their order, such as 3ms,500us. A model whose kernels take no longer gets no trials for its sake while others take longer than wanted. With --budget survey the run ends when all models are as fast",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "start",
        kind: "defaults, random",
        default: "defaults",
        doc: "What the search of each task begins with. defaults: the default of each sketch; random: a random point of each sketch in its place, for comparisons of strategies",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "learn-loops",
        kind: "on, off",
        default: "off",
        doc: "What models of strategies learn from. off: decisions and the cost that rules predict; on: also what the lowered program of a candidate tells, for the best of what they propose",
        source: "ADR 0039",
        affects_code: false,
    },
    Knob {
        name: "learner",
        kind: "trees, network, random",
        default: "trees",
        doc: "What models of strategies are made of. trees: boosted trees; network: a small neural network; random: noise, which shows what a strategy finds without a model",
        source: "ADR 0039",
        affects_code: false,
    },
    Knob {
        name: "budget",
        kind: "gradient, promise, round-robin, sequential, survey",
        default: "promise",
        doc: "How trials are divided between tasks. promise: the task whose next trial promises most is next; gradient: the task whose next batch is expected to lower the cost most, as in Ansor; round-robin: tasks take turns; sequential: each task until it stands still; survey: rounds of a batch for every task, until the whole model gains little for its cost",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "survey",
        kind: "NAME=VALUE,...",
        default: "trials=64,phi=-0.25,patience=2,misses=2",
        doc: "With --budget survey: the candidates of a batch; what is added to 1 for the share of the last rate of gain at which a rate is low; the low rates in a row that end the run; and the batches in a row without a new best after which one more takes a task out of the rounds",
        source: "Trimmer, section IV-C",
        affects_code: false,
    },
    Knob {
        name: "tuners",
        kind: "NAME,... of strategies",
        default: "none: --strategy",
        doc: "Strategies that tune the model side by side, in turns of a batch at most: the one that was asked for the fewest candidates is next. Each has the rule of --budget for its tasks; the best one's result counts. With --budget survey the one with the least gain is suspended whenever one stands still",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "filter",
        kind: "NAME,... of chance, cold, distinct, loops, neighbours, score",
        default: "none",
        doc: "Filters that candidates pass before they are measured, in the order given. chance drops a tenth by chance, which other filters are compared with; cold learns from the answers which candidates are slower than the trend, and drops what is like these; distinct drops schedules that the task had before; loops keeps the half of a batch whose loops move the fewest cache lines; neighbours drops candidates near slow ones; score reads the machine code and drops candidates that are predicted to be much slower than the fastest so far",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "cold-network",
        kind: "file",
        default: "cold.network beside the store if it is there, else the one that ships with the program",
        doc: "With --filter cold: a network that `records train-cold` made of the candidates of other tasks. The filter works from the first batch on",
        source: "Trimmer, section IV-B",
        affects_code: false,
    },
    Knob {
        name: "cold-rule",
        kind: "neighbours=N, above=N or best=N",
        default: "best=8",
        doc: "With --filter cold: what is dropped. neighbours=8: candidates of whose ten nearest known ones eight are cold or failed, as in Trimmer; above=1: candidates whose predicted logarithm of time is so many deviations above that of the fastest answer; best=8: of each eight all but the one that is predicted to be the fastest. What is kept is measured in the order of its predictions",
        source: "ADR 0041",
        affects_code: false,
    },
    Knob {
        name: "cold-least",
        kind: "count",
        default: "0 with a network that was trained before, else 32",
        doc: "With --filter cold: answers of a task's search that the filter waits for before it does anything",
        source: "ADR 0041; Trimmer leaves it open",
        affects_code: false,
    },
    Knob {
        name: "chance",
        kind: "share",
        default: "0.1",
        doc: "With --filter chance: the share of candidates that it drops, such as 40%. Another filter that drops as many is worth what it gains over this one",
        source: "ADR 0041",
        affects_code: false,
    },
    Knob {
        name: "audit",
        kind: "share",
        default: "0",
        doc: "Share of the candidates that filters drop which is measured all the same. The report says how many of these were fast, so that it is known how often filters are right",
        source: "ADR 0041",
        affects_code: false,
    },
    Knob {
        name: "seed",
        kind: "number",
        default: "1",
        doc: "Seed of the search, and of the random inputs",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "overlap",
        kind: "on, off, auto",
        default: "auto",
        doc: "Build the next candidates while one is measured; auto is on if the kernels leave a CPU for a builder",
        source: "bench/FIGURES.md, measuring side by side",
        affects_code: false,
    },
    Knob {
        name: "builders",
        kind: "count",
        default: "the CPUs that kernels leave, or all with --overlap off; at least 1",
        doc: "Builder processes",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "rotate",
        kind: "on, off",
        default: "on",
        doc: "Rotate constants through copies, so that constants are as cold as in the model. The copies have as many bytes as the model touches between two uses, at most three times the last-level cache",
        source: "ADR 0008",
        affects_code: false,
    },
    Knob {
        name: "tolerance",
        kind: "number",
        default: "1e-4",
        doc: "Reject kernels whose relative L2 error exceeds this",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "accuracy",
        kind: "strict, relaxed",
        default: "relaxed",
        doc: "strict: operators computed from their definition; relaxed: also algorithms that lose digits, such as Winograd convolution, which spreads an infinite or huge value over its tile, and scales of quantised products folded into one, so that a sum between two bytes may become the other one",
        source: "ADR 0007",
        affects_code: true,
    },
    Knob {
        name: "precision",
        kind: "model, bf16",
        default: "model",
        doc: "bf16: convolutions and products of f32 round their factors to bf16, and add in f32; inputs and outputs stay f32",
        source: "ADR 0026",
        affects_code: true,
    },
    Knob {
        name: "space",
        kind: "rules, templates, all",
        default: "all",
        doc: "Whose sketches are used: rules that read the program, templates written by hand, or all; the general nest stands in where these have none",
        source: "ADR 0022",
        affects_code: true,
    },
    Knob {
        name: "in-model-time",
        kind: "duration",
        default: "a tenth of --time, at most 30s; 3s with --trials",
        doc: "Time for choosing layouts, and the same time again for choosing among finalists; whole-model latency decides both",
        source: "ADR 0008",
        affects_code: false,
    },
    Knob {
        name: "compare-time",
        kind: "duration",
        default: "3s",
        doc: "Time for comparing the tuned model with the defaults, at most; models that take long get a few inferences",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "build-limit",
        kind: "duration",
        default: "20s",
        doc: "Time after which a builder is killed",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "run-limit",
        kind: "duration",
        default: "10s",
        doc: "Time after which a runner is killed; doppler uses eta and iota of --doppler instead",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "measure",
        kind: "auto, serial, serial-spawn, naive, doppler",
        default: "auto",
        doc: "How candidates are measured: serial and serial-spawn measure one candidate at a time, naive and doppler several. auto is doppler if --overlap is off and kernels leave a CPU, otherwise serial",
        source: "bench/FIGURES.md, measuring side by side",
        affects_code: false,
    },
    Knob {
        name: "measure-batch",
        kind: "count",
        default: "64",
        doc: "Candidates of a task that are measured together, by naive and doppler",
        source: "DOPpler, section 5.1",
        affects_code: false,
    },
    Knob {
        name: "lose",
        kind: "share",
        default: "0",
        doc: "Largest probability of giving up a candidate early although it is as fast as the best; 0 gives up only clearly slow candidates",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "rank",
        kind: "share",
        default: "0.01",
        doc: "Share of a task's measured candidates (at least one) that is measured again alone at the end. Candidates within 10% of the best are added; tasks below 1% of the model's time are left out",
        source: "DOPpler, section 5.3",
        affects_code: false,
    },
    Knob {
        name: "drift",
        kind: "share",
        default: "0.05",
        doc: "Warn if the CPU's speed changes by more than this share",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "devices",
        kind: "count",
        default: "1",
        doc: "Number of devices: the CPUs are divided into this many sets",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "oversubscribe",
        kind: "count",
        default: "1",
        doc: "How many single-threaded kernels share a CPU (naive and doppler)",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "doppler",
        kind: "NAME=VALUE,...",
        default: "the paper's constants, listed below",
        doc: "Constants of the policy doppler to change; `knobs` lists them with their defaults",
        source: "DOPpler, section 5.1",
        affects_code: false,
    },
    Knob {
        name: "threads",
        kind: "count",
        default: "all CPUs; of a compiled model the threads that it was compiled for",
        doc: "Threads of the kernels",
        source: OWN_CHOICE,
        affects_code: true,
    },
    Knob {
        name: "target",
        kind: "host, or a family",
        default: "host",
        doc: "Instruction set family: host, x86-sse2, x86-avx2, x86-avx512, aarch64-neon, riscv64-gc, riscv64-rvv",
        source: OWN_CHOICE,
        affects_code: true,
    },
    Knob {
        name: "tune-cpu",
        kind: "off, host, name",
        default: "off",
        doc: "Processor whose instruction latencies order the instructions: a generic one of the family (off), this machine's (host), or one by LLVM's name, such as znver4 or neoverse-v2",
        source: "ADR 0019: on an EPYC with AVX-512 the model of the processor makes VGG-16 2% slower",
        affects_code: true,
    },
    Knob {
        name: "algorithms",
        kind: "PREFIX,...",
        default: "all",
        doc: "Search only sketches whose names begin with one of these. A task without such a sketch searches all its sketches. `tasks --json` lists the names",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "pin",
        kind: "off, cores, CPUs",
        default: "$TUNESMITH_PIN, or off",
        doc: "Keep threads on CPUs: off, cores (one a core), or CPUs such as 0,2",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "spin-us",
        kind: "microseconds",
        default: "$TUNESMITH_SPIN_US, or 100 (0 with more threads than CPUs)",
        doc: "Microseconds that a waiting thread spins before it sleeps",
        source: OWN_CHOICE,
        affects_code: false,
    },
    Knob {
        name: "map",
        kind: "flag",
        default: "off",
        doc: "Map constants from the artifact so that processes share them; its small pages make some models slower",
        source: OWN_CHOICE,
        affects_code: false,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_are_found_by_their_names_which_differ() {
        for (i, k) in KNOBS.iter().enumerate() {
            assert!(std::ptr::eq(knob(k.name), k), "{}", k.name);
            assert!(KNOBS[..i].iter().all(|o| o.name != k.name));
            assert!(!k.doc.ends_with('.') && !k.default.is_empty());
        }
        assert_eq!(number::<f64>(knob("drift")), 0.05);
    }
}
