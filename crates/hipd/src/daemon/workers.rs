//! Encryption and decryption on one thread for each core, including the daemon's own.
//!
//! The daemon's thread decides about packets in order, and hands them over in jobs. Jobs to encrypt ([`Workers::seal`]) end with sending
//! in the order of the jobs, by one thread at a time. The results of jobs to decrypt are taken in order, too ([`Workers::take_opened`]). So
//! packets keep the order of their sequence numbers on the way out, and of their arrival on the way in.
//!
//! The daemon's thread takes part when too much is queued or when it waits for a result. While too many jobs to encrypt are not sent, it
//! waits, and the queue of the TUN device drops what does not fit. A few packets are not worth waking another
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
    /// A batch was sent.
    is_sent: Condvar,
    /// Jobs to encrypt that are not sent.
    sealing: AtomicUsize,
    not_sent: AtomicU64,
    not_sealed: AtomicU64,
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
        // The number of cores that this process may use.
        Self::start_beside(thread::available_parallelism().map_or(0, |cores| cores.get() - 1), senders)
    }

    fn start_beside(threads: usize, senders: &Arc<Senders>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            senders: Arc::clone(senders),
            jobs: Mutex::default(),
            is_job: Condvar::new(),
            is_ending: AtomicBool::new(false),
            sending: Mutex::default(),
            is_sent: Condvar::new(),
            sealing: AtomicUsize::new(0),
            not_sent: AtomicU64::new(0),
            not_sealed: AtomicU64::new(0),
        });
        let mut workers =
            Self { shared, threads: Vec::new(), opening: VecDeque::new(), next_seal: 0, own: Batch::default() };
        for index in 1..=threads {
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
                self.shared.send(&mut self.own);
                continue;
            }
            self.shared.wait_for_room(QUEUED * (self.threads.len() + 1));
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
        // Another thread is sending.
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

    /// How many packets could not be encrypted.
    pub(super) fn not_sealed(&self) -> u64 {
        self.shared.not_sealed.load(Ordering::Relaxed)
    }

    /// How many fragments were sent of packets that exceed their path's MTU.
    pub(super) fn fragments(&self) -> u64 {
        self.shared.senders.fragments()
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
    /// Sends all queued packets.
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
        let _guard = AbortOnPanic;
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
            self.send(&mut batch);
            self.sealing.fetch_sub(1, Ordering::Release);
            sending = lock(&self.sending);
            sending.next += 1;
            if sending.spare.len() < QUEUED {
                sending.spare.push(batch);
            }
            self.is_sent.notify_one();
        }
        sending.is_busy = false;
    }

    fn send(&self, batch: &mut Batch) {
        self.not_sealed.fetch_add(batch.take_not_sealed(), Ordering::Relaxed);
        self.not_sent.fetch_add(self.senders.send(batch), Ordering::Relaxed);
    }

    /// Waits until at most `most` jobs to encrypt are not sent, and takes part meanwhile.
    fn wait_for_room(&self, most: usize) {
        let is_full = || self.sealing.load(Ordering::Acquire) > most;
        while is_full() && self.help() {}
        let mut sending = lock(&self.sending);
        while is_full() {
            sending = self.is_sent.wait(sending).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A thread that panicked would leave jobs unfinished, and others would wait for them for ever: the process ends instead, as with a panic
/// of the daemon's own thread. In the profile `operator` each panic does so by itself (`panic = "abort"`).
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

impl Opened {
    fn complete(&self, packets: Vec<Incoming>) {
        let decrypted = packets.into_iter().map(Incoming::decrypt).collect();
        *lock(&self.result) = Some(decrypted);
        self.is_done.notify_one();
    }
}

/// A panic of another thread ends the process ([`AbortOnPanic`]).
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, UdpSocket};
    use std::time::Duration;

    use bytes::Bytes;
    use holdover_base::Instant;
    use holdover_hip::host::State;
    use holdover_hip::identity::{Algorithm, KeyPair};
    use holdover_wire::{Packet, Payload, Udp};
    use socket2::Socket;

    use super::*;
    use crate::core::{Core, CoreConfig, PORT};
    use crate::files::{Peers, Via};
    use crate::random::SystemRandom;

    const ADDRESSES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))];

    /// Two hosts with an association in UDP; the first one knows the second at `port`.
    fn pair(now: &mut Instant, port: u16) -> [Core; 2] {
        let config = || CoreConfig { wake: None, ..CoreConfig::default() };
        let mut hosts = [(); 2].map(|()| {
            let keys = KeyPair::generate(Algorithm::Ed25519, &mut SystemRandom);
            Core::new(keys, config(), Box::new(SystemRandom))
        });
        let hits = hosts.each_ref().map(Core::hit);
        for (index, host) in hosts.iter_mut().enumerate() {
            let peers = Peers::on_loopback("peer", hits[1 - index], ADDRESSES[1 - index], Via::Udp);
            host.set_locators(*now, &ADDRESSES[index..=index]);
            host.set_peers(*now, &peers);
        }
        for _ in 0..1000 {
            for index in 0..2 {
                while let Some(mut packet) = hosts[index].poll_network() {
                    if let Payload::Udp(udp) = &mut packet.payload {
                        udp.dst_port = PORT;
                        udp.src_port = if index == 1 { port } else { PORT };
                    }
                    hosts[1 - index].handle_network(*now, packet);
                }
            }
            if (0..2).all(|index| hosts[index].state(hits[1 - index]) == State::Established) {
                return hosts;
            }
            let due = hosts.iter().filter_map(Core::poll_timeout).min();
            *now = due.unwrap_or(*now).max(*now) + holdover_base::Duration::from_millis(1);
            hosts.iter_mut().for_each(|host| host.handle_timeout(*now));
            // The first data ends R2-SENT.
            let hello = datagram(&hosts[0], &hosts[1], 0, 10);
            hosts[0].handle_inner(*now, hello);
            let hello = datagram(&hosts[1], &hosts[0], 0, 10);
            hosts[1].handle_inner(*now, hello);
        }
        panic!("no association");
    }

    fn datagram(from: &Core, to: &Core, number: u16, len: usize) -> Packet {
        let payload = Bytes::from(vec![number as u8; len]);
        Packet::new(from.hit().0.into(), to.hit().0.into(), Udp { src_port: number, dst_port: 9, payload })
    }

    /// Data through several threads in both directions: sequence numbers and packets are in order, and nothing is missing, whether
    /// the kernel takes runs of datagrams or not.
    // Claim: Encrypted packets leave in order by several threads; the datagrams of a run that the kernel refuses are sent each by
    // itself, and those that it refuses as well are counted. Ancillary data of sockets that is truncated, or has wrong lengths,
    // is read up to there.
    // Tests: `workers::replays_within_a_job_are_dropped`, `sending::the_datagrams_of_a_refused_run_are_sent_apart`,
    // `sending::each_datagram_that_is_refused_is_counted`, `sending::runs_are_given_up_where_no_device_takes_them`,
    // `ancillary::truncated_ancillary_data_has_what_precedes_the_cut`, `ancillary::wrong_lengths_end_ancillary_data`,
    // `ancillary::data_of_another_size_than_the_kernels_is_not_believed`, `ancillary::any_ancillary_data_is_read`
    #[test]
    fn packets_keep_their_order() {
        for joins in [true, false] {
            let receiver = UdpSocket::bind((ADDRESSES[1], 0)).unwrap();
            receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let udp: Socket = UdpSocket::bind((ADDRESSES[0], 0)).unwrap().into();
            let unused: Socket = UdpSocket::bind((ADDRESSES[0], 0)).unwrap().into();
            let senders = Arc::new(Senders::new(unused, None, [Some(Arc::new(udp)), None]));
            senders.set_joins(joins);
            let mut now = Instant::from_secs(1000);
            let [mut from, mut to] = pair(&mut now, receiver.local_addr().unwrap().port());
            while from.poll_network().is_some() || to.poll_inner().is_some() {}
            let mut workers = Workers::start_beside(3, &senders).unwrap();
            let mut last = 0;
            for round in 0..20 {
                // Runs of equal length, shorter ones, which end a run, and longer ones, which begin one; and now and then a few.
                let lens = (0..if round % 5 == 4 { 5 } else { 200 }).map(|index| match index % 50 {
                    48 => 60,
                    49 => 200,
                    _ => 100,
                });
                let sent: Vec<Packet> =
                    (0..).zip(lens).map(|(index, len)| datagram(&from, &to, round * 200 + index, len)).collect();
                for packet in &sent {
                    from.handle_inner(now, packet.clone());
                }
                workers.seal(core::iter::from_fn(|| from.poll_outgoing()));
                let received: Vec<Packet> = sent.iter().map(|_| receive(&receiver)).collect();
                for packet in &received {
                    let Payload::Udp(udp) = &packet.payload else { panic!("a datagram") };
                    let number = u32::from_be_bytes(*udp.payload[4..].first_chunk().unwrap());
                    assert!(number > last, "{number} after {last}");
                    last = number;
                }
                workers.open(received.into_iter().filter_map(|packet| to.begin_network(now, packet)));
                while let Some(opened) = workers.take_opened() {
                    opened.into_iter().for_each(|decrypted| to.finish_network(now, decrypted));
                }
                assert_eq!(delivered(&mut to), sent, "round {round}");
            }
            assert_eq!(workers.not_sent(), 0);
            assert_eq!(to.counters().not_authentic, 0);
        }
    }

    /// The values of the packets for programs.
    fn delivered(core: &mut Core) -> Vec<Packet> {
        let packets = core::iter::from_fn(|| core.poll_inner());
        packets.map(|packet| Packet { received: None, ..packet }).collect()
    }

    fn receive(socket: &UdpSocket) -> Packet {
        let mut buffer = [0; 2048];
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        let payload = Bytes::copy_from_slice(&buffer[..len]);
        Packet::new(from.ip(), ADDRESSES[1], Udp { src_port: PORT, dst_port: PORT, payload })
    }

    /// Packets of one job that come twice: the anti-replay window sees them in order, and passes each once.
    #[test]
    fn replays_within_a_job_are_dropped() {
        let any = || Socket::from(UdpSocket::bind((ADDRESSES[0], 0)).unwrap());
        let mut workers = Workers::start_beside(2, &Arc::new(Senders::new(any(), None, [None, None]))).unwrap();
        let mut now = Instant::from_secs(1000);
        let [mut from, mut to] = pair(&mut now, PORT);
        while from.poll_network().is_some() || to.poll_inner().is_some() {}
        let sent: Vec<Packet> = (0..100).map(|index| datagram(&from, &to, index, 100)).collect();
        sent.iter().for_each(|packet| from.handle_inner(now, packet.clone()));
        let carried: Vec<Packet> = core::iter::from_fn(|| from.poll_network()).collect();
        let twice = carried.iter().flat_map(|packet| [packet.clone(), packet.clone()]);
        let before = to.counters().not_authentic;
        workers.open(twice.filter_map(|packet| to.begin_network(now, packet)));
        while let Some(opened) = workers.take_opened() {
            opened.into_iter().for_each(|decrypted| to.finish_network(now, decrypted));
        }
        assert_eq!(delivered(&mut to), sent);
        assert_eq!(to.counters().not_authentic - before, 100);
    }
}
