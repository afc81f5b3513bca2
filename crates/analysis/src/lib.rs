//! What a candidate costs, told by reading its flat code and machine code.
//!
//! After Tuna (Wang et al., 2021). `joint` matches the loops of both and counts
//! instructions, `pipeline` gives cycles on LLVM's scheduling models, `movement` counts
//! the cache lines that are moved. Nothing is run, so any target of the code generator can be analysed on any host.
//! Knows nothing of how candidates are searched or measured.

mod accesses;
mod chains;
mod classes;
mod columns;
mod cores;
mod executions;
mod features;
mod footprint;
mod graph;
mod joint;
mod movement;
mod paths;
mod pipeline;
mod rates;
mod ratio;
mod regions;
mod roofline;
mod score;
mod text;

pub use classes::Class;
pub use columns::{column_names, columns};
pub use cores::{CORES, CacheLevel, Core, core};
pub use executions::Executions;
pub use features::{Features, MachineFeatures, caches, levels, loops, machine};
pub use graph::{Block, Graph, MachineLoop};
pub use joint::{Analysis, BlockReport, Counts, Entry, Fate, FunctionReport, LoopMatch, analyse};
pub use movement::{Cache, Movement, movement};
pub use pipeline::{Cycles, cycles};
pub use rates::{RATES_START, Rates, Reached, Unreadable};
pub use ratio::{RATIOS, ratios};
pub use roofline::{Busy, Limits, decoded_bytes};
pub use score::{Score, Terms};
pub use text::{print, print_movement};
