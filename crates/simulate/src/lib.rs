//! Running candidates on processors that are not here, by counting instead of timing
//! (Instruction-accurate simulators).

mod addresses;
mod cache;
mod cpus;
mod own;
mod sample;
mod statistics;

pub use addresses::DependsOnData;
pub use cache::{Access, CacheSetting, Caches, Geometry, Hits, LINE, LevelCounts};
pub use cpus::{Cpu, cpus};
pub use own::{Kernel, simulate};
pub use sample::{ReadError, Sample};
pub use statistics::Statistics;
