//! Modems as ModemManager (`org.freedesktop.ModemManager1`, on the system bus) reports them: whether a modem is connected to
//! its network, and how strong the network's signal is.
//!
//! While ModemManager does not run, or there is no bus, nothing is reported; the connection to the bus is retried once a minute.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};

use futures_lite::{StreamExt as _, stream};
use zbus::message::Type;
use zbus::{Connection, MatchRule, Message, MessageStream, OwnedObjectPath, OwnedVariant};

use super::Dbm;
use super::bus::{self, BUS, Ended, Follow, Reporter, Reports, member_of, owner_changes, owner_of, sender_of};

/// A report about the modem of an interface.
#[derive(Clone, PartialEq, Debug)]
pub struct ModemReport {
    /// The network interface of the modem.
    pub interface: String,
    /// The report.
    pub update: ModemUpdate,
}

/// A report of a modem's state or level.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ModemUpdate {
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
pub struct Modems(Reports<ModemReport>);

const SERVICE: &str = "org.freedesktop.ModemManager1";
const PATH: &str = "/org/freedesktop/ModemManager1";
const MODEM: &str = "org.freedesktop.ModemManager1.Modem";
const SIGNAL: &str = "org.freedesktop.ModemManager1.Modem.Signal";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// `MM_MODEM_STATE_CONNECTED`.
const CONNECTED: i32 = 11;
/// Properties of the signal with an RSRP.
const TECHNOLOGIES: [&str; 2] = ["Nr5g", "Lte"];
/// `MM_MODEM_PORT_TYPE_NET`.
const NET_PORT: u32 = 2;

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
        let follower = |reports| Follower {
            reports,
            options,
            modems: BTreeMap::new(),
            levels: BTreeMap::new(),
            measuring: BTreeSet::new(),
        };
        Reports::follow(follower).map(Self)
    }

    /// The next report, in order.
    pub fn poll_report(&mut self) -> Option<ModemReport> {
        self.0.poll()
    }

    /// Whether its thread has ended: no reports will follow.
    pub const fn has_ended(&self) -> bool {
        self.0.has_ended()
    }
}

impl AsFd for Modems {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The thread's side.
struct Follower {
    reports: Reporter<ModemReport>,
    options: ModemOptions,
    /// The interfaces of each modem, by the path of its object.
    modems: BTreeMap<String, BTreeSet<String>>,
    /// The last measured level of each technology of [`TECHNOLOGIES`], by modem.
    levels: BTreeMap<String, [Option<Dbm>; TECHNOLOGIES.len()]>,
    /// Modems that measure levels: their `Setup` has succeeded.
    measuring: BTreeSet<String>,
}

type Properties = HashMap<String, OwnedVariant>;
type Objects = HashMap<OwnedObjectPath, HashMap<String, Properties>>;

impl Follow for Follower {
    const NAME: &'static str = "modems";

    async fn follow(&mut self) -> Result<Infallible, Ended> {
        let bus = bus::connect(self.options.address.as_deref()).await?;
        let of_service = MatchRule::builder().msg_type(Type::Signal).sender(SERVICE).path_namespace(PATH);
        let of_service = of_service.build()?;
        let signals = MessageStream::for_match_rule(of_service, &bus, Some(QUEUE)).await?;
        let names = MessageStream::for_match_rule(owner_changes(SERVICE)?, &bus, Some(QUEUE)).await?;
        let mut both = stream::or(names, signals);
        let mut owner = owner_of(&bus, SERVICE).await?;
        self.list(&bus, owner.as_deref()).await?;
        while let Some(message) = both.next().await {
            let message = message?;
            let (sender, member) = (sender_of(&message), member_of(&message));
            if sender == BUS && member == "NameOwnerChanged" {
                // Another ModemManager has not been asked to measure.
                self.measuring.clear();
                owner = owner_of(&bus, SERVICE).await?;
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
        Err(Ended::closed())
    }

    fn withdraw(&mut self) -> Result<(), Ended> {
        self.levels.clear();
        self.measuring.clear();
        let gone: BTreeSet<String> = std::mem::take(&mut self.modems).into_values().flatten().collect();
        gone.into_iter().try_for_each(|name| self.report_interface(name, ModemUpdate::Gone))
    }

    fn log(error: &zbus::Error) {
        tracing::debug!(%error, "cannot follow ModemManager");
    }
}

impl Follower {
    /// Lists all modems, reports their state, and asks for measurements.
    async fn list(&mut self, bus: &Connection, owner: Option<&str>) -> Result<(), Ended> {
        let Some(owner) = owner else { return self.withdraw() };
        let answer =
            bus.call_method(Some(owner), PATH, Some("org.freedesktop.DBus.ObjectManager"), "GetManagedObjects", &());
        let objects: Objects = match answer.await {
            Ok(answer) => answer.body().deserialize()?,
            // It ends, which its name's owner will show.
            Err(error) if bus::is_answer(&error) => return self.withdraw(),
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
        gone.into_iter().try_for_each(|name| self.report_interface(name, ModemUpdate::Gone))?;
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
                Ok((_, state, _)) => self.report(path, ModemUpdate::Connected(state == CONNECTED)),
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
                    self.report(path, ModemUpdate::Connected(state == CONNECTED))?;
                }
                match properties.get("SignalQuality").and_then(quality) {
                    Some(percent) => self.report(path, ModemUpdate::Quality(percent)),
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
                let has_changed = is_measured && (level.is_some() || before.is_some());
                if has_changed { self.report(path, ModemUpdate::Level(level)) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// Reports about all interfaces of a modem.
    fn report(&self, path: &str, update: ModemUpdate) -> Result<(), Ended> {
        let names = self.modems.get(path).into_iter().flatten();
        names.into_iter().try_for_each(|name| self.report_interface(name.clone(), update))
    }

    fn report_interface(&self, interface: String, update: ModemUpdate) -> Result<(), Ended> {
        self.reports.report(ModemReport { interface, update })
    }
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
