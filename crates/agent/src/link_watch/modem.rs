//! Modems as ModemManager (`org.freedesktop.ModemManager1`, on the system bus) reports them: whether a modem is connected to
//! its network, and how strong the network's signal is.
//!
//! The bus is read by a separate thread and one of zbus's, which sleep in between. ModemManager is never started for this.
//! While it does not run, or there is no bus, nothing is reported; the connection to the bus is retried once a minute.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Read as _, Write as _};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use futures_lite::{StreamExt as _, future, stream};
use zbus::connection::Builder;
use zbus::message::Type;
use zbus::{Connection, MatchRule, Message, MessageStream, OwnedObjectPath, OwnedVariant};

use super::Dbm;

/// A report about the modem of an interface.
#[derive(Clone, PartialEq, Debug)]
pub struct ModemReport {
    /// The network interface of the modem.
    pub interface: String,
    /// The report.
    pub news: ModemNews,
}

/// What is reported.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ModemNews {
    /// Whether the modem is connected to its network (`MM_MODEM_STATE_CONNECTED`).
    Connected(bool),
    /// The power of the reference signal (RSRP); `None` if it is not known any more.
    Level(Option<Dbm>),
    /// The quality of the signal, in percent.
    Quality(u8),
    /// There is no such modem any more, or no ModemManager.
    Gone,
}

/// Options of the connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModemOptions {
    /// The bus address; `None` for the system bus.
    pub address: Option<String>,
    /// The interval, in seconds, at which ModemManager is asked to measure levels; `None` for not at all.
    pub levels_every_s: Option<u32>,
}

/// The connection to ModemManager. Readable when [`Self::poll_report`] has something.
#[derive(Debug)]
pub struct Modems {
    reports: mpsc::Receiver<ModemReport>,
    /// A byte for each report.
    wakeups: UnixStream,
    stop: Arc<Stop>,
    has_ended: bool,
}

const SERVICE: &str = "org.freedesktop.ModemManager1";
const PATH: &str = "/org/freedesktop/ModemManager1";
const MODEM: &str = "org.freedesktop.ModemManager1.Modem";
const SIGNAL: &str = "org.freedesktop.ModemManager1.Modem.Signal";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const BUS: &str = "org.freedesktop.DBus";

/// `MM_MODEM_STATE_CONNECTED`.
const CONNECTED: i32 = 11;
/// Properties of the signal with an RSRP.
const TECHNOLOGIES: [&str; 2] = ["Nr5g", "Lte"];
/// `MM_MODEM_PORT_TYPE_NET`.
const NET_PORT: u32 = 2;

/// The interval between attempts.
const RETRY: Duration = Duration::from_secs(60);
/// The timeout for answers of the bus or of ModemManager.
const PATIENCE: Duration = Duration::from_secs(10);
/// The capacity of each queue of signals.
const QUEUE: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// The most modems that are followed.
const MOST_MODEMS: usize = 64;

impl Modems {
    /// Connects. Call it after privileges have been dropped.
    ///
    /// # Errors
    /// No more descriptors or threads are available.
    pub fn follow(options: ModemOptions) -> io::Result<Self> {
        let (report, reports) = mpsc::channel();
        let (wakeups, wakeup) = UnixStream::pair()?;
        wakeups.set_nonblocking(true)?;
        let stop = Arc::new(Stop::default());
        let mut follower = Follower {
            reports: report,
            wakeup,
            options,
            modems: BTreeMap::new(),
            levels: BTreeMap::new(),
            measuring: BTreeSet::new(),
        };
        let stopped = Arc::clone(&stop);
        thread::Builder::new().name("modems".to_owned()).spawn(move || follower.run(&stopped))?;
        Ok(Self { reports, wakeups, stop, has_ended: false })
    }

    /// The next report, in order.
    pub fn poll_report(&mut self) -> Option<ModemReport> {
        let mut byte = [0];
        match self.wakeups.read(&mut byte) {
            Ok(1..) => self.reports.try_recv().ok(),
            Ok(0) => {
                self.has_ended = true;
                None
            }
            Err(_) => None,
        }
    }

    /// Whether its thread has ended: no reports will follow.
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }
}

impl AsFd for Modems {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeups.as_fd()
    }
}

impl Drop for Modems {
    fn drop(&mut self) {
        self.stop.request();
    }
}

/// Ends the thread when the receiver of its reports is dropped, also while it waits for the bus.
#[derive(Debug, Default)]
struct Stop {
    state: Mutex<StopState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct StopState {
    is_requested: bool,
    /// Of the thread, while it waits for the bus.
    waker: Option<Waker>,
}

impl Stop {
    fn state(&self) -> MutexGuard<'_, StopState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self) {
        let mut state = self.state();
        state.is_requested = true;
        state.waker.take().into_iter().for_each(Waker::wake);
        self.changed.notify_all();
    }

    /// Ends when the stop is requested.
    async fn requested(&self) {
        std::future::poll_fn(|context| {
            let mut state = self.state();
            state.waker = Some(context.waker().clone());
            if state.is_requested { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Sleeps, but no longer than until the stop is requested; returns whether it is.
    fn sleep(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), time, |state| !state.is_requested);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_requested
    }
}

/// The thread's side.
struct Follower {
    reports: mpsc::Sender<ModemReport>,
    wakeup: UnixStream,
    options: ModemOptions,
    /// The interfaces of each modem, by the path of its object.
    modems: BTreeMap<String, BTreeSet<String>>,
    /// The last measured level of each technology of [`TECHNOLOGIES`], by modem.
    levels: BTreeMap<String, [Option<Dbm>; TECHNOLOGIES.len()]>,
    /// Modems that measure levels: their `Setup` has succeeded.
    measuring: BTreeSet<String>,
}

/// Why following ends.
enum Ended {
    /// The receiver is gone.
    ReceiverGone,
    Bus(zbus::Error),
}

impl From<zbus::Error> for Ended {
    fn from(error: zbus::Error) -> Self {
        Self::Bus(error)
    }
}

type Properties = HashMap<String, OwnedVariant>;
type Objects = HashMap<OwnedObjectPath, HashMap<String, Properties>>;

impl Follower {
    fn run(&mut self, stop: &Stop) {
        let mut is_logged = false;
        loop {
            let stopped = async {
                stop.requested().await;
                Err(Ended::ReceiverGone)
            };
            let ended = future::block_on(future::or(stopped, self.follow())).unwrap_err();
            match ended {
                Ended::ReceiverGone => return,
                Ended::Bus(error) => {
                    if !std::mem::replace(&mut is_logged, true) {
                        tracing::debug!(%error, "cannot follow ModemManager");
                    }
                }
            }
            if self.withdraw_all().is_err() || stop.sleep(RETRY) {
                return;
            }
        }
    }

    /// Runs until the bus connection is lost.
    async fn follow(&mut self) -> Result<std::convert::Infallible, Ended> {
        let builder = match &self.options.address {
            Some(address) => Builder::address(address.as_str()),
            None => Builder::system(),
        };
        let bus = builder.method_timeout(PATIENCE).build().await?;
        let of_service = MatchRule::builder().msg_type(Type::Signal).sender(SERVICE).path_namespace(PATH);
        let of_service = of_service.build()?;
        let of_name = MatchRule::builder().msg_type(Type::Signal).sender(BUS).interface(BUS);
        let of_name = of_name.member("NameOwnerChanged").arg(0, SERVICE).build()?;
        let signals = MessageStream::for_match_rule(of_service, &bus, Some(QUEUE)).await?;
        let names = MessageStream::for_match_rule(of_name, &bus, Some(QUEUE)).await?;
        let mut both = stream::or(names, signals);
        let mut owner = owner_of(&bus).await?;
        self.list(&bus, owner.as_deref()).await?;
        while let Some(message) = both.next().await {
            let message = message?;
            let (sender, member) = (sender_of(&message), member_of(&message));
            if sender == BUS && member == "NameOwnerChanged" {
                // Another ModemManager has not been asked to measure.
                self.measuring.clear();
                owner = owner_of(&bus).await?;
                self.list(&bus, owner.as_deref()).await?;
            } else if owner.as_deref() != Some(&*sender) {
                // Any process on the bus may send signals.
            } else if member == "InterfacesAdded" || member == "InterfacesRemoved" {
                self.list(&bus, owner.as_deref()).await?;
            } else {
                self.handle_signal(&message, &member)?;
                if member == "StateChanged" {
                    // A modem that is disabled, or not initialized yet, refuses to measure.
                    self.measure(&bus, owner.as_deref()).await?;
                }
            }
        }
        Err(Ended::Bus(zbus::Error::InputOutput(io::Error::from(io::ErrorKind::UnexpectedEof).into())))
    }

    /// Lists all modems, reports their state, and asks for measurements.
    async fn list(&mut self, bus: &Connection, owner: Option<&str>) -> Result<(), Ended> {
        let Some(owner) = owner else { return self.withdraw_all() };
        let answer =
            bus.call_method(Some(owner), PATH, Some("org.freedesktop.DBus.ObjectManager"), "GetManagedObjects", &());
        let objects: Objects = match answer.await {
            Ok(answer) => answer.body().deserialize()?,
            // It ends, which its name's owner will show.
            Err(zbus::Error::MethodError(..)) => return self.withdraw_all(),
            Err(error) => return Err(error.into()),
        };
        let before = std::mem::take(&mut self.modems);
        for (path, interfaces) in objects.iter().take(MOST_MODEMS) {
            let Some(properties) = interfaces.get(MODEM) else { continue };
            let names = properties.get("Ports").map(network_ports).unwrap_or_default();
            self.modems.insert(path.to_string(), names);
            self.handle_properties(path, MODEM, properties)?;
            if let Some(levels) = interfaces.get(SIGNAL) {
                self.levels.entry(path.to_string()).or_default();
                self.handle_properties(path, SIGNAL, levels)?;
            }
        }
        self.levels.retain(|path, _| self.modems.contains_key(path));
        self.measuring.retain(|path| self.modems.contains_key(path));
        let now: BTreeSet<String> = self.modems.values().flatten().cloned().collect();
        let gone: BTreeSet<String> = before.into_values().flatten().filter(|name| !now.contains(name)).collect();
        gone.into_iter().try_for_each(|name| self.report_interface(name, ModemNews::Gone))?;
        self.measure(bus, Some(owner)).await
    }

    /// Asks for measurements by modems that can measure and do not yet.
    async fn measure(&mut self, bus: &Connection, owner: Option<&str>) -> Result<(), Ended> {
        let Some((owner, every_s)) = owner.zip(self.options.levels_every_s) else { return Ok(()) };
        for path in self.levels.keys().filter(|path| !self.measuring.contains(*path)).cloned().collect::<Vec<_>>() {
            match bus.call_method(Some(owner), path.as_str(), Some(SIGNAL), "Setup", &every_s).await {
                Ok(_) => _ = self.measuring.insert(path),
                Err(error) => tracing::info!(%error, modem = path, "ModemManager does not measure levels"),
            }
        }
        Ok(())
    }

    /// A signal of ModemManager.
    fn handle_signal(&mut self, message: &Message, member: &str) -> Result<(), Ended> {
        let header = message.header();
        let Some(path) = header.path() else { return Ok(()) };
        let interface = header.interface().map(ToString::to_string).unwrap_or_default();
        match member {
            "StateChanged" if interface == MODEM => match message.body().deserialize::<(i32, i32, u32)>() {
                Ok((_, state, _)) => self.report(path, ModemNews::Connected(state == CONNECTED)),
                Err(_) => Ok(()),
            },
            "PropertiesChanged" if interface == PROPERTIES => {
                match message.body().deserialize::<(String, Properties, Vec<String>)>() {
                    Ok((of, changed, _)) => self.handle_properties(path, &of, &changed),
                    Err(_) => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn handle_properties(&mut self, path: &str, of: &str, properties: &Properties) -> Result<(), Ended> {
        match of {
            MODEM => {
                if let Some(state) = properties.get("State").and_then(|state| i32::try_from(state).ok()) {
                    self.report(path, ModemNews::Connected(state == CONNECTED))?;
                }
                match properties.get("SignalQuality").and_then(quality) {
                    Some(percent) => self.report(path, ModemNews::Quality(percent)),
                    None => Ok(()),
                }
            }
            SIGNAL => {
                let Some(levels) = self.levels.get_mut(path) else { return Ok(()) };
                let before = levels.iter().flatten().max().copied();
                // A signal has the technologies that have changed only.
                for (technology, level) in TECHNOLOGIES.iter().zip(levels.iter_mut()) {
                    if let Some(measured) = properties.get(*technology) {
                        *level = reference_power(measured);
                    }
                }
                let level = levels.iter().flatten().max().copied();
                let is_measured = TECHNOLOGIES.iter().any(|technology| properties.contains_key(*technology));
                let is_news = is_measured && (level.is_some() || before.is_some());
                if is_news { self.report(path, ModemNews::Level(level)) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// Reports about all interfaces of a modem.
    fn report(&self, path: &str, news: ModemNews) -> Result<(), Ended> {
        let names = self.modems.get(path).into_iter().flatten();
        names.into_iter().try_for_each(|name| self.report_interface(name.clone(), news))
    }

    fn report_interface(&self, interface: String, news: ModemNews) -> Result<(), Ended> {
        self.reports.send(ModemReport { interface, news }).map_err(|_| Ended::ReceiverGone)?;
        (&self.wakeup).write_all(&[0]).map_err(|_| Ended::ReceiverGone)
    }

    fn withdraw_all(&mut self) -> Result<(), Ended> {
        self.levels.clear();
        self.measuring.clear();
        let gone: BTreeSet<String> = std::mem::take(&mut self.modems).into_values().flatten().collect();
        gone.into_iter().try_for_each(|name| self.report_interface(name, ModemNews::Gone))
    }
}

/// The unique name of ModemManager; `None` if it does not run.
async fn owner_of(bus: &Connection) -> zbus::Result<Option<String>> {
    let answer = bus.call_method(Some(BUS), "/org/freedesktop/DBus", Some(BUS), "GetNameOwner", &SERVICE).await;
    match answer {
        Ok(answer) => Ok(Some(answer.body().deserialize()?)),
        Err(zbus::Error::MethodError(..)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn sender_of(message: &Message) -> String {
    message.header().sender().map(ToString::to_string).unwrap_or_default()
}

fn member_of(message: &Message) -> String {
    message.header().member().map(ToString::to_string).unwrap_or_default()
}

/// The names of the network interfaces among `Ports`, an array of names and kinds.
fn network_ports(ports: &OwnedVariant) -> BTreeSet<String> {
    let ports = ports.try_clone().and_then(Vec::<(String, u32)>::try_from);
    ports.unwrap_or_default().into_iter().filter(|(_, kind)| *kind == NET_PORT).map(|(name, _)| name).collect()
}

/// `SignalQuality`: percent, and whether it was measured recently.
fn quality(value: &OwnedVariant) -> Option<u8> {
    let (percent, is_recent) = value.try_clone().and_then(<(u32, bool)>::try_from).ok()?;
    u8::try_from(percent.min(100)).ok().filter(|_| is_recent)
}

/// `rsrp` of a technology's measurements, in dBm.
fn reference_power(measured: &OwnedVariant) -> Option<Dbm> {
    let measured = <&zbus::Dict<'_, '_>>::try_from(measured).ok()?;
    let power: Option<f64> = measured.get(&"rsrp").ok().flatten();
    // ModemManager writes a large negative number for an unknown level. LTE's and 5G's range ends at -156 dBm.
    power.filter(|power| (-200.0..=0.0).contains(power)).map(|power| Dbm(power.round().max(-128.0) as i8))
}
