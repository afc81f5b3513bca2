//! The time of what was read by measured limits of a machine: of each resource, or of the busiest one (a roofline).
//!
//! Nothing is fitted. What a machine's limits do not tell, pages and crowded sets, has the cycles of
//! [`Score::USUAL`].

use crate::features::{Features, MachineFeatures};
use crate::score::Score;

/// Bytes of a cache line.
const LINE: f64 = 64.0;

/// Bytes of an instruction: vector instructions of x86 have 4 to 8.
const INSTRUCTION: f64 = 6.0;

/// Bytes of code whose decoded instructions a core keeps: 4096 operations of 4 bytes and more, as Zen 3, Zen 4 and
/// Golden Cove keep 4096 (their optimization manuals).
const DECODED: f64 = 16384.0;
/// Bytes of code of which the first-level cache keeps all (the same cores).
const CODE_CACHE: f64 = 32768.0;
/// Bytes that a core decodes in a cycle otherwise.
const DECODES: f64 = 16.0;

/// Limits of one thread, and what a parallel loop takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    pub cycle_ns: f64,
    /// Of a load from the first-level cache.
    pub load_ns: f64,
    /// Of a line from the second-level cache, from the last-level one, and from memory.
    pub line_ns: [f64; 3],
    pub fork_ns: f64,
}

/// Nanoseconds that each resource is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// Starting instructions, by the model of the pipeline.
    pub pipeline: f64,
    /// Bringing and decoding instructions that the core does not keep decoded.
    pub fetch: f64,
    pub loads: f64,
    /// Bringing lines from the level behind each cache.
    pub lines: [f64; 3],
    /// Pages and crowded sets.
    pub pages: f64,
    pub forks: f64,
}

/// Bytes of instructions that the core decodes since it does not keep them: of code that is larger than what it keeps,
/// the part beyond.
pub fn decoded_bytes(m: &MachineFeatures) -> f64 {
    m.classes.iter().sum::<f64>() * INSTRUCTION * beyond(m, DECODED)
}

/// The share of the hot code that does not fit.
fn beyond(m: &MachineFeatures, bytes: f64) -> f64 {
    match m.hot_bytes > bytes {
        true => 1.0 - bytes / m.hot_bytes,
        false => 0.0,
    }
}

impl Limits {
    /// Of reads in GB/s from the first-level cache, the second-level one, the last-level one and memory, by loads of
    /// so many bytes.
    pub fn of(cycle_ns: f64, gb_per_s: [f64; 4], load_bytes: f64, fork_ns: f64) -> Limits {
        let [l1, l2, last, memory] = gb_per_s;
        Limits {
            cycle_ns,
            load_ns: load_bytes / l1,
            line_ns: [l2, last, memory].map(|rate| LINE / rate),
            fork_ns,
        }
    }

    pub fn busy(&self, f: &Features) -> Busy {
        let usual = Score::USUAL;
        let pages =
            usual.page * f.pages + usual.page_visit * f.page_visits + usual.crowded * f.crowded;
        let [l2, last, memory] = self.line_ns;
        let data = Busy {
            lines: [f.lines[0] * l2, f.lines[1] * last, f.lines[2] * memory],
            pages: pages * self.cycle_ns,
            forks: f.forks * self.fork_ns,
            ..Busy::default()
        };
        let Some(m) = &f.machine else { return data };
        let instructions = m.classes.iter().sum::<f64>() * INSTRUCTION;
        let from_l2 = instructions * beyond(m, CODE_CACHE) / LINE * l2;
        Busy {
            pipeline: m.repeated * self.cycle_ns,
            fetch: decoded_bytes(m) / DECODES * self.cycle_ns + from_l2,
            loads: m.loads * self.load_ns,
            ..data
        }
    }
}

impl Busy {
    /// If nothing overlaps.
    pub fn sum(&self) -> f64 {
        let lines = self.lines.iter().sum::<f64>();
        self.pipeline + self.fetch + self.loads + lines + self.pages + self.forks
    }

    /// If everything overlaps but waking threads.
    pub fn longest(&self) -> f64 {
        let all = [self.pipeline, self.fetch, self.loads, self.pages];
        let busiest = all.into_iter().chain(self.lines).fold(0.0, f64::max);
        busiest + self.forks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_resource_counts_and_all_of_them_add_up() {
        let limits = Limits::of(0.5, [128.0, 64.0, 32.0, 16.0], 64.0, 1000.0);
        assert_eq!(limits.line_ns, [1.0, 2.0, 4.0]);
        let machine = MachineFeatures {
            repeated: 100.0,
            loads: 40.0,
            classes: vec![80.0, 20.0],
            hot_bytes: 2000.0,
            ..MachineFeatures::default()
        };
        let f = Features {
            lines: [10.0, 20.0, 30.0],
            forks: 2.0,
            machine: Some(machine.clone()),
            ..Features::default()
        };
        let busy = limits.busy(&f);
        assert_eq!((busy.pipeline, busy.fetch, busy.loads), (50.0, 0.0, 20.0));
        assert_eq!(busy.lines, [10.0, 40.0, 120.0]);
        assert_eq!(busy.longest(), 120.0 + 2000.0);
        assert_eq!(busy.sum(), 50.0 + 20.0 + 170.0 + 2000.0);
        // Of 65536 bytes of code three quarters are decoded again and again, and half comes from the next cache.
        let large = MachineFeatures {
            hot_bytes: 65536.0,
            ..machine
        };
        let f = Features {
            machine: Some(large),
            ..f
        };
        let decoding = 600.0 * 0.75 / 16.0 * 0.5;
        assert_eq!(limits.busy(&f).fetch, decoding + 600.0 * 0.5 / 64.0);
        let loops = Features { machine: None, ..f };
        assert_eq!(limits.busy(&loops).pipeline, 0.0);
    }
}
