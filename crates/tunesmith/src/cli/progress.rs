//! Live progress on standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tune::{Observer, Status};

/// A bar with what a run tells; silent where nobody looks.
pub struct Progress {
    bar: ProgressBar,
    quiet: bool,
}

const STEPS: u64 = 1000;

impl Progress {
    /// `quiet`: print nothing.
    pub fn new(quiet: bool) -> Progress {
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr_with_hz(8)
        };
        let bar = ProgressBar::with_draw_target(Some(STEPS), target);
        let style = ProgressStyle::with_template("{bar:24.cyan} {elapsed:>4} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Progress { bar, quiet }
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Progress {
    fn stage(&mut self, what: &str) {
        self.bar.set_message(what.to_string());
        self.bar.tick();
    }

    fn part(&mut self, done: f64, what: &str) {
        self.bar
            .set_position((done.clamp(0.0, 1.0) * STEPS as f64) as u64);
        self.stage(what);
    }

    fn note(&mut self, text: &str) {
        if !self.quiet {
            self.bar.suspend(|| eprintln!("{text}"));
        }
    }

    fn status(&mut self, s: &Status<'_>) {
        self.bar
            .set_position((s.spent.clamp(0.0, 1.0) * STEPS as f64) as u64);
        let left = s
            .left
            .map_or(String::new(), |d| format!(" {}s left ·", d.as_secs()));
        let best = s
            .task_best_ms
            .map_or(String::new(), |ms| format!(" {ms:.3} ms"));
        self.bar.set_message(format!(
            "{left} model {:.2} ms · {} trials, {:.0}/s, {} failed · {}{best}",
            s.model_ms, s.trials, s.trials_per_s, s.failures, s.task
        ));
    }
}
