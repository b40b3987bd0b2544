//! Modems as ModemManager (`org.freedesktop.ModemManager1`, on the system bus) reports them: whether a modem is connected to
//! its network, and how well it hears it.
//!
//! The bus is read by a separate thread and one of zbus's, which sleep in between. ModemManager is never started for this.
//! While it does not run, or there is no bus, nothing is reported; the connection to the bus is retried once a minute.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Read as _, Write as _};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
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
    /// The power of the reference signal (RSRP).
    Level(Dbm),
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
    bell: UnixStream,
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
        let (bell, rope) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        let mut follower = Follower { report, rope, options, modems: BTreeMap::new() };
        thread::Builder::new().name("modems".to_owned()).spawn(move || follower.run())?;
        Ok(Self { reports, bell, has_ended: false })
    }

    /// The next report, in order.
    pub fn poll_report(&mut self) -> Option<ModemReport> {
        let mut byte = [0];
        match self.bell.read(&mut byte) {
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
        self.bell.as_fd()
    }
}

/// The thread's side.
struct Follower {
    report: mpsc::Sender<ModemReport>,
    rope: UnixStream,
    options: ModemOptions,
    /// The interfaces of each modem, by the path of its object.
    modems: BTreeMap<String, BTreeSet<String>>,
}

/// Why following ends.
enum Ended {
    /// The receiver is gone.
    NobodyListens,
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
    fn run(&mut self) {
        let mut has_complained = false;
        loop {
            let ended = future::block_on(self.follow()).unwrap_err();
            match ended {
                Ended::NobodyListens => return,
                Ended::Bus(error) => {
                    if !std::mem::replace(&mut has_complained, true) {
                        tracing::debug!(%error, "cannot follow ModemManager");
                    }
                }
            }
            if self.forget_all().is_err() {
                return;
            }
            // The receiver's end is noticed sooner than at the next report.
            let mut waited = Duration::ZERO;
            while waited < RETRY {
                thread::sleep(Duration::from_secs(1));
                waited += Duration::from_secs(1);
                if self.is_alone() {
                    return;
                }
            }
        }
    }

    /// Whether the receiver is gone.
    fn is_alone(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut ends = [PollFd::new(&self.rope, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut ends, Some(&now)).is_ok_and(|ready| ready > 0)
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
                owner = owner_of(&bus).await?;
                self.list(&bus, owner.as_deref()).await?;
            } else if owner.as_deref() != Some(&*sender) {
                // Any process on the bus may send signals.
            } else if member == "InterfacesAdded" || member == "InterfacesRemoved" {
                self.list(&bus, owner.as_deref()).await?;
            } else {
                self.hear(&message, &member)?;
            }
        }
        Err(Ended::Bus(zbus::Error::InputOutput(io::Error::from(io::ErrorKind::UnexpectedEof).into())))
    }

    /// Lists all modems, reports their state, and asks for measurements.
    async fn list(&mut self, bus: &Connection, owner: Option<&str>) -> Result<(), Ended> {
        let Some(owner) = owner else { return self.forget_all() };
        let answer =
            bus.call_method(Some(owner), PATH, Some("org.freedesktop.DBus.ObjectManager"), "GetManagedObjects", &());
        let objects: Objects = match answer.await {
            Ok(answer) => answer.body().deserialize()?,
            // It ends, which its name's owner will show.
            Err(zbus::Error::MethodError(..)) => return self.forget_all(),
            Err(error) => return Err(error.into()),
        };
        let before = std::mem::take(&mut self.modems);
        for (path, interfaces) in objects.iter().take(MOST_MODEMS) {
            let Some(properties) = interfaces.get(MODEM) else { continue };
            let names = properties.get("Ports").map(network_ports).unwrap_or_default();
            self.modems.insert(path.to_string(), names);
            self.hear_properties(path, MODEM, properties)?;
            let Some(levels) = interfaces.get(SIGNAL) else { continue };
            self.hear_properties(path, SIGNAL, levels)?;
            if let Some(every_s) = self.options.levels_every_s
                && !before.contains_key(path.as_str())
            {
                let asked = bus.call_method(Some(owner), path.as_str(), Some(SIGNAL), "Setup", &every_s).await;
                if let Err(error) = asked {
                    tracing::info!(%error, modem = path.as_str(), "ModemManager does not measure levels");
                }
            }
        }
        let now: BTreeSet<String> = self.modems.values().flatten().cloned().collect();
        let gone: BTreeSet<String> = before.into_values().flatten().filter(|name| !now.contains(name)).collect();
        gone.into_iter().try_for_each(|name| self.tell_one(name, ModemNews::Gone))
    }

    /// A signal of ModemManager.
    fn hear(&self, message: &Message, member: &str) -> Result<(), Ended> {
        let header = message.header();
        let Some(path) = header.path() else { return Ok(()) };
        let interface = header.interface().map(ToString::to_string).unwrap_or_default();
        match member {
            "StateChanged" if interface == MODEM => match message.body().deserialize::<(i32, i32, u32)>() {
                Ok((_, state, _)) => self.tell(path, ModemNews::Connected(state == CONNECTED)),
                Err(_) => Ok(()),
            },
            "PropertiesChanged" if interface == PROPERTIES => {
                match message.body().deserialize::<(String, Properties, Vec<String>)>() {
                    Ok((of, changed, _)) => self.hear_properties(path, &of, &changed),
                    Err(_) => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn hear_properties(&self, path: &str, of: &str, properties: &Properties) -> Result<(), Ended> {
        match of {
            MODEM => {
                if let Some(state) = properties.get("State").and_then(|state| i32::try_from(state).ok()) {
                    self.tell(path, ModemNews::Connected(state == CONNECTED))?;
                }
                match properties.get("SignalQuality").and_then(quality) {
                    Some(percent) => self.tell(path, ModemNews::Quality(percent)),
                    None => Ok(()),
                }
            }
            SIGNAL => {
                let levels =
                    ["Nr5g", "Lte"].iter().filter_map(|technology| reference_power(properties.get(*technology)?));
                match levels.max() {
                    Some(level) => self.tell(path, ModemNews::Level(level)),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Reports about all interfaces of a modem.
    fn tell(&self, path: &str, news: ModemNews) -> Result<(), Ended> {
        let names = self.modems.get(path).into_iter().flatten();
        names.into_iter().try_for_each(|name| self.tell_one(name.clone(), news))
    }

    fn tell_one(&self, interface: String, news: ModemNews) -> Result<(), Ended> {
        self.report.send(ModemReport { interface, news }).map_err(|_| Ended::NobodyListens)?;
        (&self.rope).write_all(&[0]).map_err(|_| Ended::NobodyListens)
    }

    fn forget_all(&mut self) -> Result<(), Ended> {
        let gone: BTreeSet<String> = std::mem::take(&mut self.modems).into_values().flatten().collect();
        gone.into_iter().try_for_each(|name| self.tell_one(name, ModemNews::Gone))
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
