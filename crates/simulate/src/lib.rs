//! Running candidates on processors that are not here, by counting instead of timing.

mod cache;
mod cpus;

pub use cache::{Access, CacheSetting, Caches, Geometry, Hits, LINE, LevelCounts};
pub use cpus::{Cpu, cpus};
