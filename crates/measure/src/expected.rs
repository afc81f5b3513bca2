//! What runners find out once for all: the expected outputs of tasks, which tasks
//! have none, and what a cycle counts for.
//!
//! Owns the files of expected outputs: in memory, without a name, and there as long as
//! the parent. Promises that a file is read only after it was sealed, so that no kernel
//! of any runner can change what the others compare with. Where there is no such file,
//! a runner runs the oracle itself. What the bytes mean is left to `task`.

use crate::protocol::{ExpectedFile, TaskData, TaskKey};
use crate::sealed::Sealed;
use runtime::{GuardedBuffer, ParamRole};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tasks whose outputs are kept: as many as a runner keeps.
const KEPT_TASKS: usize = 24;
/// Fewer are kept when they take more than this.
const KEPT_BYTES: u64 = 512 << 20;

/// What runners of one parent found out; runners that are given the same share it.
#[derive(Default)]
pub(crate) struct SharedFindings {
    /// Expected outputs; those used last are at the end.
    kept: Mutex<VecDeque<Arc<ExpectedOutputs>>>,
    /// Runners that share this.
    runners: AtomicUsize,
    /// What a cycle counts for, so that all mean the same.
    cycle_ns: Mutex<Option<f64>>,
    /// Why tasks have no data.
    broken: Mutex<HashMap<TaskKey, BrokenTask>>,
}

/// A task that a runner has no data of.
struct BrokenTask {
    reason: String,
    /// The runner that died of it, while others may do better.
    suspect: Option<usize>,
}

/// The expected outputs of one task.
pub(crate) struct ExpectedOutputs {
    key: TaskKey,
    file: OwnedFd,
    bytes: u64,
    /// Whether they are in the file. Who finds that they are not holds this until they
    /// are; the others wait instead of doing the same.
    complete: Mutex<bool>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedFindings {
    /// The file of a task, empty if it is new; none if the system gives none.
    pub fn expected_outputs(&self, task: &TaskData) -> Option<Arc<ExpectedOutputs>> {
        let mut kept = lock(&self.kept);
        if let Some(at) = kept.iter().position(|s| s.key == task.key()) {
            let outputs = kept.remove(at)?;
            kept.push_back(outputs.clone());
            return Some(outputs);
        }
        let outputs = Arc::new(ExpectedOutputs::new(task)?);
        kept.push_back(outputs.clone());
        let bytes =
            |kept: &VecDeque<Arc<ExpectedOutputs>>| kept.iter().map(|s| s.bytes).sum::<u64>();
        while kept.len() > KEPT_TASKS || bytes(&kept) > KEPT_BYTES {
            kept.pop_front();
        }
        Some(outputs)
    }

    /// The number of another runner that shares this.
    pub fn join(&self) -> usize {
        self.runners.fetch_add(1, Ordering::Relaxed)
    }

    /// What a cycle counts for, as the first runner said that counts them.
    pub fn cycle_ns(&self) -> Option<f64> {
        *lock(&self.cycle_ns)
    }

    pub fn set_cycle_ns(&self, ns: f64) {
        lock(&self.cycle_ns).get_or_insert(ns);
    }

    /// Why the task has no data, if that was found out.
    pub fn broken(&self, task: TaskKey) -> Option<String> {
        let broken = lock(&self.broken);
        let certain = broken.get(&task).filter(|b| b.suspect.is_none());
        certain.map(|b| b.reason.clone())
    }

    pub fn set_broken(&self, task: TaskKey, reason: &str) {
        let (reason, suspect) = (reason.into(), None);
        lock(&self.broken).insert(task, BrokenTask { reason, suspect });
    }

    /// A runner died making the data of a task; whether that is the task's fault:
    /// it has killed another one, or there is no other. Such a task is not tried
    /// again.
    pub fn killed(&self, task: TaskKey, runner: usize, reason: &str) -> bool {
        let alone = self.runners.load(Ordering::Relaxed) < 2;
        let mut broken = lock(&self.broken);
        let before = broken.get(&task).and_then(|b| b.suspect);
        let certain = alone || before.is_some_and(|other| other != runner);
        let suspect = (!certain).then_some(runner);
        let reason = reason.into();
        broken.insert(task, BrokenTask { reason, suspect });
        certain
    }
}

impl ExpectedOutputs {
    fn new(task: &TaskData) -> Option<ExpectedOutputs> {
        let outputs = task.oracle.params.iter();
        let sizes = outputs.filter(|p| p.role == ParamRole::Output);
        let bytes = sizes.map(|p| p.bytes()).try_fold(0, |sum: u64, bytes| {
            sum.checked_add(bytes?).filter(|sum| *sum <= KEPT_BYTES)
        })?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("tunesmith-expected", flags).ok()?;
        ftruncate(&file, bytes).ok()?;
        Some(ExpectedOutputs {
            key: task.key(),
            file,
            bytes,
            complete: Mutex::new(bytes == 0),
        })
    }

    /// The file. With the state, if the outputs are still to be written to it.
    pub fn file(&self) -> (ExpectedFile, Option<MutexGuard<'_, bool>>) {
        let complete = lock(&self.complete);
        let (pid, fd) = (std::process::id(), self.file.as_raw_fd());
        let file = ExpectedFile {
            path: format!("/proc/{pid}/fd/{fd}"),
            complete: *complete,
        };
        let incomplete = (!*complete).then_some(complete);
        (file, incomplete)
    }

    /// Ends all writing, now and later; whether that worked.
    pub fn seal(&self) -> bool {
        let all = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&self.file, all).is_ok()
    }
}

impl ExpectedFile {
    /// Buffers of these sizes, in this order.
    pub fn read(&self, sizes: &[usize]) -> io::Result<Vec<Sealed>> {
        let mut file = File::open(&self.path)?;
        let mut one = |size: &usize| {
            let mut buffer = GuardedBuffer::new(*size)?;
            file.read_exact(&mut buffer)?;
            Sealed::seal(buffer)
        };
        sizes.iter().map(&mut one).collect()
    }

    /// Puts the buffers into the file, which is as long as they are.
    pub fn write(&self, buffers: &[&[u8]]) -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        let bytes: usize = buffers.iter().map(|b| b.len()).sum();
        if file.metadata()?.len() != bytes as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // A runner may write to no file, but to memory.
        // SAFETY: a new mapping of a file that is as long as it; nobody else
        // writes to the file, and the mapping ends below.
        unsafe {
            let start = mmap(
                std::ptr::null_mut(),
                bytes,
                both,
                MapFlags::SHARED,
                &file,
                0,
            )?;
            let mut at: *mut u8 = start.cast();
            for b in buffers {
                at.copy_from_nonoverlapping(b.as_ptr(), b.len());
                at = at.add(b.len());
            }
            munmap(start, bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::{BuiltKernel, KernelParam};
    use tensor::DType;

    fn task(id: u64, outputs: &[i64]) -> TaskData {
        let param = |len: &i64| KernelParam {
            name: format!("y{len}"),
            dtype: DType::F32,
            shape: vec![*len],
            role: ParamRole::Output,
        };
        TaskData {
            id,
            seed: 1,
            args: vec![],
            oracle: BuiltKernel::by_hand(vec![], outputs.iter().map(param).collect()),
        }
    }

    #[test]
    fn what_was_written_is_read_and_cannot_be_changed() {
        let findings = SharedFindings::default();
        let outputs = findings.expected_outputs(&task(1, &[3, 5000])).unwrap();
        let (file, incomplete) = outputs.file();
        let (a, b): (Vec<u8>, Vec<u8>) = (vec![7; 12], (0..20_000).map(|i| i as u8).collect());
        assert!(file.write(&[&a]).is_err(), "another size");
        file.write(&[&a, &b]).unwrap();
        assert!(outputs.seal());
        *incomplete.expect("it was empty") = true;
        let outputs = findings.expected_outputs(&task(1, &[3, 5000])).unwrap();
        let (file, incomplete) = outputs.file();
        assert!(file.complete && incomplete.is_none());
        let read = file.read(&[12, 20_000]).unwrap();
        assert!(*read[0] == *a && *read[1] == *b);
        assert!(file.write(&[&a, &b]).is_err(), "it is sealed");
        assert!(file.read(&[12, 20_001]).is_err(), "there is no more");
    }

    #[test]
    fn a_task_is_broken_that_kills_every_runner_it_meets() {
        let (findings, t) = (SharedFindings::default(), task(1, &[1]).key());
        let first = findings.join();
        assert!(findings.killed(t, first, "alone"));
        assert_eq!(findings.broken(t).as_deref(), Some("alone"));
        let (findings, t) = (SharedFindings::default(), task(1, &[1]).key());
        let (first, second) = (findings.join(), findings.join());
        for _ in 0..2 {
            assert!(!findings.killed(t, first, "it may be the runner's fault"));
            assert_eq!(findings.broken(t), None);
        }
        assert!(findings.killed(t, second, "no"));
        assert_eq!(findings.broken(t).as_deref(), Some("no"));
    }

    #[test]
    fn old_files_go_and_what_is_too_large_gets_none() {
        let findings = SharedFindings::default();
        let first = Arc::downgrade(&findings.expected_outputs(&task(0, &[1])).unwrap());
        for id in 1..KEPT_TASKS as u64 {
            findings.expected_outputs(&task(id, &[1])).unwrap();
        }
        assert!(first.upgrade().is_some());
        findings.expected_outputs(&task(0, &[1])).unwrap();
        findings.expected_outputs(&task(99, &[1])).unwrap();
        assert!(first.upgrade().is_some(), "it was used since");
        let half = KEPT_BYTES as i64 / 8;
        findings.expected_outputs(&task(100, &[half])).unwrap();
        findings.expected_outputs(&task(101, &[half])).unwrap();
        assert!(first.upgrade().is_none());
        assert!(
            findings
                .expected_outputs(&task(102, &[half, half, 1]))
                .is_none()
        );
        assert!(findings.expected_outputs(&task(103, &[-1])).is_none());
    }
}
