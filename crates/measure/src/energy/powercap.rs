//! Counters of the processor's energy, as Linux shows them (powercap, RAPL).

use super::{Meter, Work};
use std::fs::{read_dir, read_to_string};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// Where Linux shows them.
pub const FOLDER: &str = "/sys/class/powercap";

/// A counter of one zone, in microjoules.
#[derive(Debug)]
struct Zone {
    energy: PathBuf,
    /// The largest value, behind which it begins at 0 again.
    most_uj: u64,
    last_uj: u64,
}

/// The packages of a machine and their memory.
#[derive(Debug)]
pub struct Powercap {
    zones: Vec<Zone>,
}

fn number(path: &Path) -> Result<u64> {
    let text = read_to_string(path)?;
    let parsed = text.trim().parse();
    parsed.map_err(|_| {
        Error::new(
            ErrorKind::InvalidData,
            format!("{}: no number", path.display()),
        )
    })
}

/// Whether a zone is counted. Cores are part of their package. A `psys` zone has the packages and
/// more, but only some machines have it.
fn is_counted(name: &str) -> bool {
    name.starts_with("package") || name == "dram"
}

impl Powercap {
    /// The counters below a folder; none if there is none, or one may not be read, which only
    /// root may by default.
    pub fn open(folder: &Path) -> Option<Powercap> {
        let mut zones = Vec::new();
        for entry in read_dir(folder).ok()?.flatten() {
            let zone = entry.path();
            let name = read_to_string(zone.join("name")).unwrap_or_default();
            // The same zones have a second entry (`intel-rapl-mmio`) on some machines.
            let rapl = entry
                .file_name()
                .to_string_lossy()
                .starts_with("intel-rapl:");
            if rapl && is_counted(name.trim()) {
                let energy = zone.join("energy_uj");
                zones.push(Zone {
                    last_uj: number(&energy).ok()?,
                    most_uj: number(&zone.join("max_energy_range_uj")).ok()?,
                    energy,
                });
            }
        }
        (!zones.is_empty()).then_some(Powercap { zones })
    }
}

impl Meter for Powercap {
    fn source(&self) -> &'static str {
        "powercap"
    }

    fn is_estimate(&self) -> bool {
        false
    }

    /// A counter that wraps takes a minute at least, so readings need to be closer than that.
    fn read_j(&mut self, _: &Work) -> Result<f64> {
        let now: Vec<u64> = self
            .zones
            .iter()
            .map(|z| number(&z.energy))
            .collect::<Result<_>>()?;
        let used = |(z, now): (&mut Zone, u64)| {
            let used = match now.checked_sub(z.last_uj) {
                Some(used) => used,
                None => z.most_uj.saturating_sub(z.last_uj) + now,
            };
            z.last_uj = now;
            used
        };
        let sum: u64 = self.zones.iter_mut().zip(now).map(used).sum();
        Ok(sum as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir, remove_file, write};

    const WORK: Work = Work {
        wall_s: 1.0,
        cpu_s: 1.0,
    };

    fn zone(folder: &Path, zone: &str, name: &str, uj: u64) -> PathBuf {
        let zone = folder.join(zone);
        create_dir(&zone).unwrap();
        write(zone.join("name"), format!("{name}\n")).unwrap();
        write(zone.join("max_energy_range_uj"), "100000000\n").unwrap();
        let energy = zone.join("energy_uj");
        write(&energy, format!("{uj}\n")).unwrap();
        energy
    }

    #[test]
    fn packages_and_memory_are_summed_over_wraps() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name, kind, uj| zone(folder.path(), name, kind, uj);
        let package = of("intel-rapl:0", "package-0", 90_000_000);
        let memory = of("intel-rapl:0:1", "dram", 5_000_000);
        let cores = of("intel-rapl:0:0", "core", 0);
        let again = of("intel-rapl-mmio:0", "package-0", 0);
        let mut meter = Powercap::open(folder.path()).unwrap();
        assert!(!meter.is_estimate());
        assert_eq!(meter.read_j(&WORK).unwrap(), 0.0);
        for other in [cores, again] {
            write(other, "7000000").unwrap();
        }
        write(&memory, "6500000").unwrap();
        assert_eq!(meter.read_j(&WORK).unwrap(), 1.5);
        // From 90 J over 100 J to 20 J.
        write(&package, "20000000").unwrap();
        assert_eq!(meter.read_j(&WORK).unwrap(), 30.0);
        // What cannot be read once is counted later.
        write(&memory, "7000000").unwrap();
        remove_file(&package).unwrap();
        assert!(meter.read_j(&WORK).is_err());
        write(&package, "21000000").unwrap();
        assert_eq!(meter.read_j(&WORK).unwrap(), 1.5);
    }

    #[test]
    fn a_machine_without_readable_packages_has_no_counter() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Powercap::open(&folder.path().join("none")).is_none());
        assert!(Powercap::open(folder.path()).is_none());
        let energy = zone(folder.path(), "intel-rapl:0", "package-0", 1);
        remove_file(energy).unwrap();
        assert!(Powercap::open(folder.path()).is_none());
    }
}
