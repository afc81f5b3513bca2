//! Makes the data of a task, with the outputs that are expected of its candidates.
//!
//! Owns where the expected outputs come from: a file that another runner filled, or
//! the task's oracle, which is run here. Promises that outputs in a file that cannot be
//! read are computed instead. Comparing with them is left to `task`.

use crate::loaded::{LoadOptions, Loaded};
use crate::protocol::{ExpectedFile, TaskData};
use crate::sealed::Sealed;
use crate::task::Task;
use runtime::{Ctx, KernelParam, ParamRole};
use std::io;

/// Fills the arguments, and reads the expected outputs or runs the oracle. The error
/// says what is wrong with the task.
pub fn task(data: &TaskData, file: Option<&ExpectedFile>) -> Result<Task, String> {
    let mut task = Task::new(data)?;
    let complete = file.filter(|f| f.complete);
    let expected = match complete.and_then(|f| read(data, f).ok()) {
        Some(expected) => expected,
        None => run(&mut task, data)?,
    };
    if expected.is_empty() {
        return Err("the oracle has no output".into());
    }
    for (p, bytes) in expected {
        task.expect(&p, bytes);
    }
    Ok(task)
}

/// Writes the expected outputs to a file, for other runners; whether that worked.
pub fn publish(task: &Task, data: &TaskData, file: &ExpectedFile) -> bool {
    let bytes = |p: &KernelParam| task.expected(&p.name);
    let all: Option<Vec<&[u8]>> = outputs(data).map(bytes).collect();
    all.is_some_and(|all| file.write(&all).is_ok())
}

/// The outputs of a task in the order in which the file has them.
fn outputs(data: &TaskData) -> impl Iterator<Item = &KernelParam> {
    let params = data.oracle.params.iter();
    params.filter(|p| p.role == ParamRole::Output)
}

/// The expected outputs that another runner computed.
fn read(data: &TaskData, file: &ExpectedFile) -> io::Result<Vec<(KernelParam, Sealed)>> {
    let size = |p: &KernelParam| p.bytes().and_then(|b| usize::try_from(b).ok());
    let sizes: Option<Vec<usize>> = outputs(data).map(size).collect();
    let all = file.read(&sizes.ok_or(io::ErrorKind::InvalidInput)?)?;
    Ok(outputs(data).cloned().zip(all).collect())
}

/// Runs the oracle.
fn run(task: &mut Task, data: &TaskData) -> Result<Vec<(KernelParam, Sealed)>, String> {
    let ctx = Ctx::serial();
    let options = LoadOptions {
        ctx: &ctx,
        threads: 1,
        index: 0,
        host_clock: false,
    };
    let outputs = Loaded::new(&data.oracle, task, options).and_then(|mut l| {
        l.poison(0xff);
        l.batch(&ctx, 1)?;
        l.check_canaries()?;
        Ok(l.into_outputs())
    });
    let mut expected = Vec::new();
    for (p, buffer) in outputs.map_err(|stop| format!("{stop:?}"))? {
        let bytes = Sealed::seal(buffer).map_err(|e| format!("{}: {e}", p.name))?;
        expected.push((p, bytes));
    }
    Ok(expected)
}
