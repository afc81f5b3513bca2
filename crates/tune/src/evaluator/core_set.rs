//! An evaluator on a thread of its own: what measures on one core set while others measure on theirs.
//!
//! Owns the thread, and what became of the batches that it was handed. All sets of a run share an [`Inbox`], so that the run
//! waits for whichever answers first. A thread that ends takes its batches with it, and no others.

use super::{Batch, Evaluator, Reply, SILENCE};
use crate::threads::unpin_current_thread;
use crate::trial::Form;
use build::ReadOptions;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Batches that a set is handed at most: one that it measures, and the next one.
const MOST_BATCHES: usize = 2;

/// What a set said, and what people should know of it.
type Said = (Reply, Vec<String>);

/// What the run and one set tell each other.
#[derive(Default)]
struct OfSet {
    replies: VecDeque<Said>,
    /// What a ranking gave, until it is taken.
    ranked: Option<(Option<Reply>, Vec<String>)>,
    /// Nothing is evaluated beyond this.
    end: Option<Instant>,
    /// Whether its thread has ended.
    ended: bool,
}

/// What all core sets of a run have said.
#[derive(Default)]
pub struct Inbox {
    sets: Mutex<Vec<OfSet>>,
    news: Condvar,
}

impl Inbox {
    fn sets(&self) -> MutexGuard<'_, Vec<OfSet>> {
        // Whoever panicked had changed nothing by halves.
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the run what `change` says of a set.
    fn tell(&self, set: usize, change: impl FnOnce(&mut OfSet)) {
        change(&mut self.sets()[set]);
        self.news.notify_all();
    }
}

/// What a set is asked to do.
enum Order {
    Evaluate(Box<Batch>),
    Rank(Box<Batch>, u32),
}

/// Says that a thread has ended, however it did.
struct Ending {
    inbox: Arc<Inbox>,
    set: usize,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.inbox.tell(self.set, |s| s.ended = true);
    }
}

/// An evaluator that answers with times, on a thread of its own.
pub struct CoreSet {
    set: usize,
    inbox: Arc<Inbox>,
    orders: Sender<Order>,
    name: &'static str,
    form: Form,
    needs_data: bool,
    reads_for: Option<ReadOptions>,
    batch: usize,
    warnings: Vec<String>,
}

impl CoreSet {
    /// Has an evaluator of times, which evaluates when it is polled, do so on a thread of its own. It finds nothing to
    /// silence there: what it measures is not measured alone.
    pub fn new(evaluator: impl Evaluator + Send + 'static, inbox: &Arc<Inbox>) -> CoreSet {
        let set = {
            let mut sets = inbox.sets();
            sets.push(OfSet::default());
            sets.len() - 1
        };
        let (orders, asked) = channel();
        let ending = Ending {
            inbox: Arc::clone(inbox),
            set,
        };
        let core_set = CoreSet {
            set,
            inbox: Arc::clone(inbox),
            orders,
            name: evaluator.name(),
            form: evaluator.form(),
            needs_data: evaluator.needs_data(),
            reads_for: evaluator.reads_for(),
            batch: evaluator.batch(),
            warnings: vec![],
        };
        std::thread::spawn(move || serve(evaluator, &asked, &ending));
        core_set
    }

    /// The next reply, if there is one.
    fn taken(&mut self, sets: &mut MutexGuard<'_, Vec<OfSet>>) -> Option<Reply> {
        let (reply, warnings) = sets[self.set].replies.pop_front()?;
        self.warnings.extend(warnings);
        Some(reply)
    }
}

/// Does what a set is asked to do, until nobody asks any more.
fn serve(mut evaluator: impl Evaluator, asked: &Receiver<Order>, ending: &Ending) {
    let Ending { inbox, set } = ending;
    // Processes that it starts run where they are told to.
    unpin_current_thread();
    for order in asked {
        let end = inbox.sets()[*set].end;
        evaluator.end_by(end);
        match order {
            Order::Evaluate(batch) => {
                evaluator.submit(*batch);
                let reply = evaluator.poll(Duration::ZERO, &mut |_| {});
                let said = reply.map(|reply| (reply, evaluator.take_warnings()));
                inbox.tell(*set, |s| s.replies.extend(said));
            }
            Order::Rank(batch, turns) => {
                let reply = evaluator.rank(*batch, turns);
                let said = (reply, evaluator.take_warnings());
                inbox.tell(*set, |s| s.ranked = Some(said));
            }
        }
    }
}

impl Evaluator for CoreSet {
    fn name(&self) -> &'static str {
        self.name
    }

    fn form(&self) -> Form {
        self.form
    }

    fn needs_data(&self) -> bool {
        self.needs_data
    }

    fn reads_for(&self) -> Option<ReadOptions> {
        self.reads_for.clone()
    }

    fn score_kind(&self, _task: &str) -> Option<String> {
        None
    }

    fn batch(&self) -> usize {
        self.batch
    }

    fn submit(&mut self, batch: Batch) {
        // Where nobody takes it, it is lost, and the run hears of that.
        let _ = self.orders.send(Order::Evaluate(Box::new(batch)));
    }

    /// Waits until any set of the run has something to say.
    fn poll(&mut self, wait: Duration, _quiet: &mut dyn FnMut(bool)) -> Option<Reply> {
        let inbox = Arc::clone(&self.inbox);
        let mut sets = inbox.sets();
        let silent = |sets: &mut Vec<OfSet>| {
            !sets[self.set].ended && sets.iter().all(|s| s.replies.is_empty())
        };
        if !wait.is_zero() {
            let waited = inbox.news.wait_timeout_while(sets, wait, silent);
            (sets, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        self.taken(&mut sets)
    }

    fn silence(&self) -> Duration {
        match self.works() {
            true => SILENCE,
            false => Duration::ZERO,
        }
    }

    fn rank(&mut self, batch: Batch, turns: u32) -> Option<Reply> {
        self.orders.send(Order::Rank(Box::new(batch), turns)).ok()?;
        let inbox = Arc::clone(&self.inbox);
        let busy = |sets: &mut Vec<OfSet>| {
            let own = &sets[self.set];
            own.ranked.is_none() && !own.ended
        };
        let waited = inbox.news.wait_while(inbox.sets(), busy);
        let mut sets = waited.unwrap_or_else(PoisonError::into_inner);
        let (reply, warnings) = sets[self.set].ranked.take()?;
        self.warnings.extend(warnings);
        reply
    }

    /// Holds from the next batch on.
    fn end_by(&mut self, end: Option<Instant>) {
        self.inbox.sets()[self.set].end = end;
    }

    fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    fn most_batches(&self) -> usize {
        MOST_BATCHES
    }

    fn is_answered(&self) -> bool {
        let own = &self.inbox.sets()[self.set];
        own.ended || !own.replies.is_empty()
    }

    fn is_beside(&self) -> bool {
        true
    }

    fn works(&self) -> bool {
        !self.inbox.sets()[self.set].ended
    }
}
