//! Encryption and decryption on as many threads as the machine has cores, of which the daemon's own is one.
//!
//! The daemon's thread decides about packets in order, and hands them over in jobs. Jobs to encrypt ([`Workers::seal`]) end with sending,
//! in the order of the jobs, by whichever thread has completed the next one. The results of jobs to decrypt are taken in order, too
//! ([`Workers::take_opened`]). So packets keep the order of their sequence numbers on the way out, and of their arrival on the way in.
//!
//! The daemon's thread takes part when too much is queued or when it waits for a result. A few packets are not worth waking another
//! thread, and are handled by the daemon's own while nothing else is under way.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::sending::{Batch, Senders};
use crate::core::{Decrypted, Incoming, Outgoing};

/// Packets that one thread handles as fast as it would wake another one.
const FEW: usize = 8;
/// Packets in a job.
const MOST: usize = 64;
/// Jobs for each thread that may be queued before the daemon's own takes one.
const QUEUED: usize = 4;

/// The threads.
#[derive(Debug)]
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Jobs to decrypt whose results were not taken.
    opening: VecDeque<Arc<Opened>>,
    next_seal: u64,
    /// The daemon's own packets, with their buffer.
    own: Batch,
}

#[derive(Debug)]
struct Shared {
    senders: Arc<Senders>,
    jobs: Mutex<VecDeque<Job>>,
    is_job: Condvar,
    is_ending: AtomicBool,
    sending: Mutex<Sending>,
    /// Jobs to encrypt that are not sent.
    sealing: AtomicUsize,
    not_sent: AtomicU64,
}

#[derive(Debug)]
enum Job {
    Seal(u64, Vec<Outgoing>),
    Open(Vec<Incoming>, Arc<Opened>),
}

/// Encrypted packets, which are sent in the order of their jobs.
#[derive(Default, Debug)]
struct Sending {
    next: u64,
    waiting: BTreeMap<u64, Batch>,
    is_busy: bool,
    /// Empty batches, for their buffers.
    spare: Vec<Batch>,
}

/// The result of a job to decrypt.
#[derive(Default, Debug)]
struct Opened {
    result: Mutex<Option<Vec<Decrypted>>>,
    is_done: Condvar,
}

impl Workers {
    /// Starts a thread for each core but the first.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn start(senders: &Arc<Senders>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            senders: Arc::clone(senders),
            jobs: Mutex::default(),
            is_job: Condvar::new(),
            is_ending: AtomicBool::new(false),
            sending: Mutex::default(),
            sealing: AtomicUsize::new(0),
            not_sent: AtomicU64::new(0),
        });
        let mut workers =
            Self { shared, threads: Vec::new(), opening: VecDeque::new(), next_seal: 0, own: Batch::default() };
        // Of the cores that this process may use.
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for index in 1..cores {
            let shared = Arc::clone(&workers.shared);
            let builder = thread::Builder::new().name(format!("hip-{index}"));
            workers.threads.push(builder.spawn(move || shared.work())?);
        }
        Ok(workers)
    }

    /// Encrypts packets and sends them behind those of earlier calls.
    pub(super) fn seal(&mut self, packets: impl IntoIterator<Item = Outgoing>) {
        let mut packets = packets.into_iter();
        loop {
            let job: Vec<Outgoing> = packets.by_ref().take(MOST).collect();
            if job.is_empty() {
                return;
            }
            let is_alone = self.threads.is_empty() || job.len() <= FEW;
            if is_alone && self.shared.sealing.load(Ordering::Acquire) == 0 {
                self.own.extend(&self.shared.senders, job);
                let refused = self.shared.senders.send(&mut self.own);
                self.shared.not_sent.fetch_add(refused, Ordering::Relaxed);
                continue;
            }
            self.shared.sealing.fetch_add(1, Ordering::Relaxed);
            let number = self.next_seal;
            self.next_seal += 1;
            self.submit(Job::Seal(number, job));
        }
    }

    /// Begins to decrypt packets, whose results are for [`Self::take_opened`].
    pub(super) fn open(&mut self, packets: impl IntoIterator<Item = Incoming>) {
        let mut packets = packets.into_iter();
        loop {
            let job: Vec<Incoming> = packets.by_ref().take(MOST).collect();
            if job.is_empty() {
                return;
            }
            let opened = Arc::new(Opened::default());
            self.opening.push_back(Arc::clone(&opened));
            if self.threads.is_empty() || job.len() <= FEW && self.opening.len() == 1 {
                opened.complete(job);
            } else {
                self.submit(Job::Open(job, opened));
            }
        }
    }

    /// How many results were not taken.
    pub(super) fn opening(&self) -> usize {
        self.opening.len()
    }

    /// The next result, in the order of arrival: waits for it. `None` if all were taken.
    pub(super) fn take_opened(&mut self) -> Option<Vec<Decrypted>> {
        let opened = self.opening.pop_front()?;
        loop {
            if let Some(result) = lock(&opened.result).take() {
                return Some(result);
            }
            if !self.shared.help() {
                break;
            }
        }
        // Another thread is at it.
        let mut result = lock(&opened.result);
        loop {
            match result.take() {
                Some(result) => return Some(result),
                None => result = opened.is_done.wait(result).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// How many packets the system has refused.
    pub(super) fn not_sent(&self) -> u64 {
        self.shared.not_sent.load(Ordering::Relaxed)
    }

    fn submit(&self, job: Job) {
        let queued = {
            let mut jobs = lock(&self.shared.jobs);
            jobs.push_back(job);
            jobs.len()
        };
        self.shared.is_job.notify_one();
        if queued > QUEUED * self.threads.len() {
            self.shared.help();
        }
    }
}

impl Drop for Workers {
    /// Sends what is queued.
    fn drop(&mut self) {
        // Under the lock: a thread that has just found nothing to do waits by now.
        let jobs = lock(&self.shared.jobs);
        self.shared.is_ending.store(true, Ordering::Relaxed);
        drop(jobs);
        self.shared.is_job.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// A thread: does jobs until the end.
    fn work(&self) {
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some(job) = jobs.pop_front() {
                drop(jobs);
                self.complete(job);
                jobs = lock(&self.jobs);
            } else if self.is_ending.load(Ordering::Relaxed) {
                return;
            } else {
                jobs = self.is_job.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Does the oldest queued job; `false` if there is none.
    fn help(&self) -> bool {
        let job = lock(&self.jobs).pop_front();
        job.map(|job| self.complete(job)).is_some()
    }

    fn complete(&self, job: Job) {
        match job {
            Job::Open(packets, opened) => opened.complete(packets),
            Job::Seal(number, packets) => {
                let mut batch = lock(&self.sending).spare.pop().unwrap_or_default();
                batch.extend(&self.senders, packets);
                self.send_in_order(number, batch);
            }
        }
    }

    /// Sends a batch after those before it: now, or by the thread that is sending these.
    fn send_in_order(&self, number: u64, batch: Batch) {
        let mut sending = lock(&self.sending);
        sending.waiting.insert(number, batch);
        if sending.is_busy {
            return;
        }
        sending.is_busy = true;
        loop {
            let next = sending.next;
            let Some(mut batch) = sending.waiting.remove(&next) else { break };
            drop(sending);
            let refused = self.senders.send(&mut batch);
            self.not_sent.fetch_add(refused, Ordering::Relaxed);
            self.sealing.fetch_sub(1, Ordering::Release);
            sending = lock(&self.sending);
            sending.next += 1;
            sending.spare.push(batch);
        }
        sending.is_busy = false;
    }
}

impl Opened {
    fn complete(&self, packets: Vec<Incoming>) {
        let decrypted = packets.into_iter().map(Incoming::decrypt).collect();
        *lock(&self.result) = Some(decrypted);
        self.is_done.notify_one();
    }
}

/// A thread that has panicked leaves nothing half done behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
