//! Every knob, declared once: name, type, default, what it does, and whether
//! it affects generated code.

/// A setting that a user may change.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    pub name: &'static str,
    /// `flag`, `count`, `bytes`, `seconds`.
    pub kind: &'static str,
    pub default: &'static str,
    pub doc: &'static str,
    pub affects_code: bool,
}

/// Flags of the same names on the command line.
pub const KNOBS: &[Knob] = &[
    Knob {
        name: "overlap",
        kind: "on, off, auto",
        default: "auto: on if the kernels leave a CPU for builders",
        doc: "builders prepare the next candidates while one is measured; recorded; finalists are measured alone",
        affects_code: false,
    },
    Knob {
        name: "builders",
        kind: "count",
        default: "the CPUs that kernels leave, or all without overlap",
        doc: "builder processes",
        affects_code: false,
    },
    Knob {
        name: "rotate",
        kind: "flag",
        default: "on",
        doc: "constants rotate through as many bytes of copies as pass between their uses in the model, up to three times the last-level cache; activations stay warm",
        affects_code: false,
    },
    Knob {
        name: "tolerance",
        kind: "number",
        default: "1e-4",
        doc: "largest relative error (L2) of a kernel's outputs against the expected ones: of candidates, of records that are used, and of layers in `check`",
        affects_code: false,
    },
    Knob {
        name: "accuracy",
        kind: "strict, relaxed",
        default: "relaxed",
        doc: "relaxed also allows algorithms that lose digits, such as Winograd convolution",
        affects_code: true,
    },
    Knob {
        name: "in-model-time",
        kind: "seconds",
        default: "a tenth of --time, at most 30; 3 with --trials",
        doc: "time for choosing layouts, and again among near-best candidates, by whole-model latency; 0 for none",
        affects_code: false,
    },
    Knob {
        name: "build-limit",
        kind: "seconds",
        default: "20",
        doc: "a builder is killed this long after it got a candidate",
        affects_code: false,
    },
    Knob {
        name: "run-limit",
        kind: "seconds",
        default: "10",
        doc: "a runner is killed this long after it got a candidate; doppler's rounds go by eta and iota of --doppler instead",
        affects_code: false,
    },
    Knob {
        name: "measure",
        kind: "auto, serial, serial-spawn, naive, doppler",
        default: "auto",
        doc: "doppler with --overlap off where kernels leave a CPU, else serial: one candidate at a time, each in a process of its own with serial-spawn; or several at once, by the host's clock (naive) or the device's own, with a degree of parallelism that follows its errors (doppler)",
        affects_code: false,
    },
    Knob {
        name: "measure-batch",
        kind: "count",
        default: "64",
        doc: "candidates of a task that are measured together, by naive and doppler",
        affects_code: false,
    },
    Knob {
        name: "lose",
        kind: "number",
        default: "0",
        doc: "share of candidates as fast as the best that may be given up after few samples, by what earlier samples told of noise; 0 gives up what is clearly slow only",
        affects_code: false,
    },
    Knob {
        name: "rank",
        kind: "number",
        default: "0.01",
        doc: "share of a task's measured candidates that is ranked alone when the search ends, at least one, by the host's clock and in turns; so is what comes within 10% of the best; tasks below 1% of the model keep their best as it is",
        affects_code: false,
    },
    Knob {
        name: "drift",
        kind: "number",
        default: "0.05",
        doc: "share by which the time of a runner's reference kernel may change before the run warns of it; records hold the change in any case",
        affects_code: false,
    },
    Knob {
        name: "devices",
        kind: "count",
        default: "1",
        doc: "sets that the CPUs are divided into; each measures candidates as a device of its own",
        affects_code: false,
    },
    Knob {
        name: "oversubscribe",
        kind: "count",
        default: "1",
        doc: "single-threaded kernels that share a CPU, by naive and doppler; kernels of several threads never do",
        affects_code: false,
    },
    Knob {
        name: "doppler",
        kind: "NAME=VALUE,...",
        default: "the paper's constants, listed below",
        doc: "constants of the measurer of the same name",
        affects_code: false,
    },
    Knob {
        name: "threads",
        kind: "count",
        default: "all CPUs",
        doc: "threads of the kernels; the schedule depends on it",
        affects_code: true,
    },
    Knob {
        name: "target",
        kind: "name",
        default: "host",
        doc: "instruction set family to generate code for",
        affects_code: true,
    },
    Knob {
        name: "pin",
        kind: "off, cores, CPUs",
        default: "$TUNESMITH_PIN, or off",
        doc: "keeps each thread of a compiled model, the caller's included, on a CPU: cores takes different cores first",
        affects_code: false,
    },
    Knob {
        name: "spin-us",
        kind: "microseconds",
        default: "$TUNESMITH_SPIN_US, or 100 (0 with more threads than CPUs)",
        doc: "how long a thread that waits for work or for its workers spins before it sleeps",
        affects_code: false,
    },
    Knob {
        name: "map",
        kind: "flag",
        default: "off",
        doc: "maps constants from the artifact, for processes to share them, instead of reading them into memory",
        affects_code: false,
    },
    Knob {
        name: "algorithms",
        kind: "prefixes",
        default: "all",
        doc: "only sketches whose names begin with one of these are searched",
        affects_code: false,
    },
];
