//! An estimate of power from the number of busy CPUs.
//!
//! Power is no multiple of busy CPUs: cores share a clock and a budget of power, so the first
//! ones that work draw more than the last ones.

use super::{Meter, Work};

/// Watts of the whole machine over busy CPUs; straight lines between its points.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerCurve {
    pub name: String,
    /// Busy CPUs and watts: from 0 CPUs on, CPUs ascend and watts do not fall.
    points: Vec<(f64, f64)>,
}

/// Watts of a CPU (a hardware thread) of a machine whose CPUs are all busy, its share of the rest
/// of the machine included, where nothing else is known.
const USUAL_FULL_W: f64 = 5.0;
/// The part of that which an idle machine draws.
const USUAL_IDLE: f64 = 0.3;
/// What half of the CPUs draw, as a part of what all draw: the ends of what was measured on four
/// machines.
const HALF: [(&str, f64); 2] = [("steep", 0.63), ("flat", 1.0)];

impl PowerCurve {
    /// A curve through these points.
    ///
    /// # Errors
    /// If they do not begin at 0 CPUs, CPUs do not ascend, or watts fall or are no power.
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Result<PowerCurve, String> {
        let fail = |why: &str| Err(format!("the curve `{name}` {why}"));
        let [(first, idle_w), _, ..] = points[..] else {
            return fail("needs two points at least: those of 0 and of all busy CPUs");
        };
        if first != 0.0 {
            return fail("does not begin with the watts of 0 busy CPUs");
        }
        let finite = |p: &(f64, f64)| p.0.is_finite() && p.1.is_finite();
        if idle_w < 0.0 || !points.iter().all(finite) {
            return fail("has a point that is no number of CPUs and watts");
        }
        if points
            .windows(2)
            .any(|w| w[1].0 <= w[0].0 || w[1].1 < w[0].1)
        {
            return fail("has CPUs that do not ascend, or watts that fall");
        }
        Ok(PowerCurve {
            name: name.into(),
            points,
        })
    }

    /// Watts that so many busy CPUs draw; more than the last point has draw what that does.
    pub fn watts(&self, busy: f64) -> f64 {
        let next = self.points.partition_point(|p| p.0 <= busy.max(0.0));
        let (from, Some(to)) = (self.points[next - 1], self.points.get(next)) else {
            return self.full_w();
        };
        from.1 + (busy.max(0.0) - from.0) / (to.0 - from.0) * (to.1 - from.1)
    }

    pub fn idle_w(&self) -> f64 {
        self.points[0].1
    }

    pub fn full_w(&self) -> f64 {
        self.points[self.points.len() - 1].1
    }

    /// The two curves of a machine of which only the number of its CPUs is known.
    pub fn usual(cpus: usize) -> [PowerCurve; 2] {
        let cpus = cpus.max(1) as f64;
        let full = cpus * USUAL_FULL_W;
        HALF.map(|(name, half)| PowerCurve {
            name: name.into(),
            points: vec![
                (0.0, USUAL_IDLE * full),
                (cpus / 2.0, half * full),
                (cpus, full),
            ],
        })
    }

    /// A curve with the ends of this one, on which half of the CPUs draw as much as all.
    pub fn flattened(&self) -> PowerCurve {
        let (cpus, full) = self.points[self.points.len() - 1];
        let (name, half) = HALF[1];
        PowerCurve {
            name: name.into(),
            points: vec![
                (0.0, self.idle_w()),
                (cpus / 2.0, half * full),
                (cpus, full),
            ],
        }
    }
}

/// A meter that follows a curve.
#[derive(Debug)]
pub struct Estimate {
    curve: PowerCurve,
}

impl Estimate {
    pub fn new(curve: PowerCurve) -> Estimate {
        Estimate { curve }
    }
}

impl Meter for Estimate {
    fn source(&self) -> &str {
        &self.curve.name
    }

    fn is_estimate(&self) -> bool {
        true
    }

    fn read_j(&mut self, work: &Work) -> std::io::Result<f64> {
        let busy = match work.wall_s > 0.0 {
            true => work.cpu_s / work.wall_s,
            false => 0.0,
        };
        Ok(self.curve.watts(busy) * work.wall_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watts_lie_on_lines_between_points() {
        let curve = PowerCurve::new("c", vec![(0.0, 10.0), (2.0, 50.0), (4.0, 60.0)]).unwrap();
        for (busy, watts) in [
            (0.0, 10.0),
            (1.0, 30.0),
            (2.0, 50.0),
            (3.0, 55.0),
            (9.0, 60.0),
        ] {
            assert_eq!(curve.watts(busy), watts, "{busy}");
        }
        assert_eq!((curve.idle_w(), curve.full_w()), (10.0, 60.0));
        assert_eq!(curve.flattened().watts(2.0), 60.0);
        let mut meter = Estimate::new(curve);
        let work = |wall_s, cpu_s| Work { wall_s, cpu_s };
        assert_eq!(meter.read_j(&work(10.0, 10.0)).unwrap(), 300.0);
        assert_eq!(meter.read_j(&work(0.0, 0.0)).unwrap(), 0.0);
        assert!(meter.is_estimate());
    }

    #[test]
    fn two_curves_enclose_what_was_measured() {
        let [steep, flat] = PowerCurve::usual(8);
        assert_eq!(steep.idle_w(), flat.idle_w());
        assert_eq!(steep.watts(8.0), flat.watts(8.0));
        assert_eq!(steep.watts(4.0) / steep.full_w(), 0.63);
        assert_eq!(flat.watts(4.0), flat.full_w());
    }

    #[test]
    fn what_is_no_curve_is_refused() {
        for (points, why) in [
            (vec![(0.0, 1.0)], "two points"),
            (vec![(1.0, 1.0), (2.0, 2.0)], "begin"),
            (vec![(0.0, -1.0), (2.0, 2.0)], "no number"),
            (vec![(0.0, 1.0), (f64::NAN, 2.0)], "no number"),
            (vec![(0.0, 3.0), (1.0, 2.0)], "fall"),
            (vec![(0.0, 3.0), (1.0, 4.0), (1.0, 5.0)], "ascend"),
        ] {
            let said = PowerCurve::new("c", points).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
