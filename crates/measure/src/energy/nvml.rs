//! Counters of the energy of NVIDIA's devices, as their driver's library (NVML) gives them.
//!
//! The library is looked for when a meter is made, so a machine without it needs nothing. It stays loaded. A device
//! without a counter is left out: devices before Volta have none.

use super::{Meter, Work};
use std::ffi::{CStr, c_int, c_uint, c_ulonglong, c_void};
use std::io::{Error, Result};
use std::mem::transmute;

const LIBRARY: &CStr = c"libnvidia-ml.so.1";

/// What the library names a device by: a pointer to something of its own, which no one else reads.
type Device = usize;

/// The functions of the library that are called. Each gives 0 if it succeeds.
#[derive(Clone, Copy, Debug)]
struct Library {
    init: unsafe extern "C" fn() -> c_int,
    count: unsafe extern "C" fn(*mut c_uint) -> c_int,
    device: unsafe extern "C" fn(c_uint, *mut Device) -> c_int,
    /// Millijoules since the driver was loaded.
    energy_mj: unsafe extern "C" fn(Device, *mut c_ulonglong) -> c_int,
}

/// The result that a function of the library writes to the place that it is given.
fn given<T: Default>(call: impl FnOnce(*mut T) -> c_int) -> Result<T> {
    let mut value = T::default();
    match call(&raw mut value) {
        0 => Ok(value),
        code => Err(Error::other(format!("NVML gives the error {code}"))),
    }
}

impl Library {
    /// The library of this machine's driver; none if it has none.
    fn loaded() -> Option<Library> {
        // SAFETY: the name ends with 0, and loading NVML runs no code that depends on this program.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return None;
        }
        let function = |name: &CStr| -> Option<*mut c_void> {
            // SAFETY: the library was loaded and is never closed, and the name ends with 0.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        // SAFETY: these are the signatures in NVIDIA's header `nvml.h`, where a device is a pointer.
        unsafe {
            Some(Library {
                init: transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(function(
                    c"nvmlInit_v2",
                )?),
                count: transmute::<*mut c_void, unsafe extern "C" fn(*mut c_uint) -> c_int>(
                    function(c"nvmlDeviceGetCount_v2")?,
                ),
                device: transmute::<*mut c_void, unsafe extern "C" fn(c_uint, *mut Device) -> c_int>(
                    function(c"nvmlDeviceGetHandleByIndex_v2")?,
                ),
                energy_mj: transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(Device, *mut c_ulonglong) -> c_int,
                >(function(c"nvmlDeviceGetTotalEnergyConsumption")?),
            })
        }
    }

    fn used_mj(&self, device: Device) -> Result<u64> {
        // SAFETY: the library gave the device, and the place is that of a number.
        given(|place| unsafe { (self.energy_mj)(device, place) })
    }
}

/// All devices of a machine that count their energy.
#[derive(Debug)]
pub struct Nvml {
    library: Library,
    /// With what each had used at the last reading.
    devices: Vec<(Device, u64)>,
}

impl Nvml {
    /// None if the machine has no such library, or no device that counts.
    pub fn open() -> Option<Nvml> {
        Nvml::of(Library::loaded()?)
    }

    fn of(library: Library) -> Option<Nvml> {
        // SAFETY: it may be called at any time.
        if unsafe { (library.init)() } != 0 {
            return None;
        }
        // SAFETY: the library is initialised, and the places are those of numbers.
        let count = given(|place| unsafe { (library.count)(place) }).ok()?;
        let device = |index| given(|place| unsafe { (library.device)(index, place) }).ok();
        let counting = |device| Some((device, library.used_mj(device).ok()?));
        let devices: Vec<(Device, u64)> =
            (0..count).filter_map(device).filter_map(counting).collect();
        (!devices.is_empty()).then_some(Nvml { library, devices })
    }
}

impl Meter for Nvml {
    fn source(&self) -> &'static str {
        "nvml"
    }

    fn is_estimate(&self) -> bool {
        false
    }

    fn read_j(&mut self, _: &Work) -> Result<f64> {
        let now = self.devices.iter().map(|(d, _)| self.library.used_mj(*d));
        let now: Vec<u64> = now.collect::<Result<_>>()?;
        let used = |((_, last), now): (&mut (Device, u64), u64)| {
            // A driver that was loaded again begins at 0.
            let used = now.checked_sub(*last).unwrap_or(now);
            *last = now;
            used
        };
        let sum: u64 = self.devices.iter_mut().zip(now).map(used).sum();
        Ok(sum as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    const WORK: Work = Work {
        wall_s: 1.0,
        cpu_s: 1.0,
    };

    /// Millijoules of two devices; the third has no counter.
    static USED: [AtomicU64; 2] = [AtomicU64::new(5_000), AtomicU64::new(0)];

    unsafe extern "C" fn init() -> c_int {
        0
    }

    unsafe extern "C" fn fails() -> c_int {
        9
    }

    unsafe extern "C" fn count(place: *mut c_uint) -> c_int {
        // SAFETY: the caller's place.
        unsafe { *place = 3 };
        0
    }

    unsafe extern "C" fn device(index: c_uint, place: *mut Device) -> c_int {
        // SAFETY: the caller's place.
        unsafe { *place = 100 + index as usize };
        0
    }

    unsafe extern "C" fn energy_mj(device: Device, place: *mut c_ulonglong) -> c_int {
        let Some(used) = USED.get(device - 100).map(|u| u.load(Relaxed)) else {
            return 3;
        };
        if used == u64::MAX {
            return 15;
        }
        // SAFETY: the caller's place.
        unsafe { *place = used };
        0
    }

    const FAKE: Library = Library {
        init,
        count,
        device,
        energy_mj,
    };

    #[test]
    fn the_devices_that_count_are_summed() {
        let mut meter = Nvml::of(FAKE).unwrap();
        assert_eq!((meter.devices.len(), meter.is_estimate()), (2, false));
        assert_eq!(meter.read_j(&WORK).unwrap(), 0.0);
        USED[0].store(7_500, Relaxed);
        USED[1].store(1_000, Relaxed);
        assert_eq!(meter.read_j(&WORK).unwrap(), 3.5);
        // What cannot be read once is counted later.
        USED[0].store(8_000, Relaxed);
        USED[1].store(u64::MAX, Relaxed);
        let failed = meter.read_j(&WORK).unwrap_err().to_string();
        assert_eq!(failed, "NVML gives the error 15");
        USED[1].store(1_500, Relaxed);
        assert_eq!(meter.read_j(&WORK).unwrap(), 1.0);
        // The driver was loaded again.
        USED[0].store(250, Relaxed);
        assert_eq!(meter.read_j(&WORK).unwrap(), 0.25);
    }

    #[test]
    fn a_machine_without_a_working_driver_has_no_meter() {
        let broken = Library {
            init: fails,
            ..FAKE
        };
        assert!(Nvml::of(broken).is_none());
    }
}
