//! CPU time of this process and of the processes that it started.

use std::fs::{read_dir, read_to_string};

/// Seconds of CPU time that this process has used, and its children that have ended. Children of
/// what ran under its number before, such as a build, are among them.
pub fn own_cpu_s() -> f64 {
    let of = |who| {
        // SAFETY: an all-zero rusage is valid, and the call fills it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &raw mut usage);
            usage
        };
        let s = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
        s(usage.ru_utime) + s(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

/// As [`own_cpu_s`], and its children that run; of these, what their own ended children used
/// is counted, too.
pub fn family_cpu_s() -> f64 {
    let running = children();
    own_cpu_s() + running.iter().filter_map(|pid| ticks(pid)).sum::<f64>() / ticks_per_s()
}

/// Numbers of the children that run, as every thread of this process started them.
fn children() -> Vec<String> {
    let threads = read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|t| read_to_string(t.path().join("children")).ok());
    let numbers = |list: String| {
        let each = list.split_ascii_whitespace().map(String::from);
        each.collect::<Vec<_>>()
    };
    lists.flat_map(numbers).collect()
}

fn ticks_per_s() -> f64 {
    // SAFETY: the call takes a number and returns one.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) as f64 }
}

/// Clock ticks of a process and its ended children.
fn ticks(pid: &str) -> Option<f64> {
    ticks_of(&read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The ticks in the text of a `stat` file, whose second field is a name that may hold anything.
fn ticks_of(stat: &str) -> Option<f64> {
    let (_, behind) = stat.rsplit_once(')')?;
    // utime, stime, cutime and cstime are the fields 14 to 17 of all.
    let mut fields = behind.split_ascii_whitespace().skip(11).take(4);
    let sum = fields.try_fold((0, 0.0), |(n, sum), f| {
        Some((n + 1, sum + f.parse::<f64>().ok()?))
    });
    sum.filter(|(n, _)| *n == 4).map(|(_, sum)| sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 0 0 10 20 3 4 20 0 1 0";
        assert_eq!(ticks_of(stat), Some(37.0));
        assert_eq!(ticks_of("7 (a) S 1 7"), None);
    }

    #[test]
    fn what_a_running_child_uses_counts_before_and_after_its_end() {
        let before = family_cpu_s();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; read x";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 4];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        let children = children();
        assert!(children.contains(&child.id().to_string()), "{children:?}");
        let running = family_cpu_s() - before;
        drop(child.stdin.take());
        child.wait().unwrap();
        let ended = family_cpu_s() - before;
        // A clock tick is a hundredth of a second.
        assert!(
            running > 0.0 && ended >= running - 0.02,
            "{running} {ended}"
        );
    }
}
