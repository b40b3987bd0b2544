//! Links that take turns: a host alternating between networks.

use holdover_base::{Duration, Instant};
use holdover_link::{Outage, Outages};

use super::{TIME_LIMIT, above_zero};
use crate::error::ErrorKind;
use crate::file::{self, Length, Link, ScenarioFile};
use crate::problem::{Problem, Under};

/// The maximum number of turns.
const MAX_TURNS: u64 = 1_000_000;

/// The outages of a link that takes turns with others; `None` if it does not. A problem lies below the link's outages.
pub(super) fn of(file: &ScenarioFile, link: &Link) -> Result<Option<Outages>, Problem> {
    let leader_of = |link: &Link| link.outages.as_ref().and_then(|outages| outages.take_turns_with.clone());
    let leader = leader_of(link);
    let name = leader.as_deref().unwrap_or(&link.name);
    let followers: Vec<&str> = file
        .links
        .iter()
        .filter(|other| leader_of(other).as_deref() == Some(name))
        .map(|other| other.name.as_str())
        .collect();
    if followers.is_empty() {
        return Ok(None);
    }
    let Some(first) = file.links.iter().find(|other| other.name == name) else {
        let known = file.links.iter().map(|other| other.name.as_str());
        return Err(Problem::unknown_name("link", name, known)).under("take_turns_with");
    };
    if leader.is_some() {
        only_turns(link)?;
        if first.name == link.name || leader_of(first).is_some() {
            let message = format!("\"{name}\" takes turns with another link itself; name that one");
            return Err(Problem::conflict(message)).under("take_turns_with");
        }
    }
    let place = followers.iter().position(|&other| other == link.name).map_or(0, |place| place + 1);
    let Some(table) = &first.outages else {
        let message = format!("\"{name}\" has no \"connected\" and \"disconnected\" times to take turns by");
        return Err(Problem::conflict(message)).under("take_turns_with");
    };
    let schedule = Schedule::new(file, table)?;
    Ok(Some(Outages::List(schedule.outages(place as u64, followers.len() as u64 + 1))))
}

/// Checks that the link sets nothing else: the named link describes the turns.
fn only_turns(link: &Link) -> Result<(), Problem> {
    let Some(table) = &link.outages else { return Ok(()) };
    let others = [
        ("list", table.list.is_some()),
        ("connected", table.connected.is_some()),
        ("disconnected", table.disconnected.is_some()),
        ("first_at", table.first_at.is_some()),
        ("count", table.count.is_some()),
    ];
    match others.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((key, _)) => {
            let message = format!("\"{key}\" is said at the link with which this one takes turns");
            Err(Problem::conflict(message)).under(key)
        }
    }
}

/// The schedule of turns.
struct Schedule {
    first: Duration,
    connected: Duration,
    disconnected: Duration,
    /// The number of changes; `None` until the end of the run.
    count: Option<u64>,
    until: Instant,
}

impl Schedule {
    fn new(file: &ScenarioFile, table: &file::Outages) -> Result<Self, Problem> {
        let constant = |length: &Option<Length>, key: &str| match length {
            Some(Length::Constant(time)) => Ok(*time),
            Some(Length::Drawn(_)) => {
                let message = format!("links that take turns need a constant time for \"{key}\"");
                Err(Problem::conflict(message)).under(key)
            }
            None => Err(Problem::new(ErrorKind::MissingField, format!("the field \"{key}\" is missing"))),
        };
        let connected = above_zero(constant(&table.connected, "connected")?, "connected")?;
        let disconnected = constant(&table.disconnected, "disconnected")?.0;
        let until = Instant::ZERO + file.time_limit.map_or(TIME_LIMIT, |limit| limit.0);
        let turns = (until.saturating_since(Instant::ZERO).as_nanos()) / (connected + disconnected).as_nanos();
        if table.count.unwrap_or(turns).min(turns) > MAX_TURNS {
            let message = format!("more than {MAX_TURNS} turns within the time limit of the run");
            return Err(Problem::conflict(message)).under("connected");
        }
        let first = table.first_at.map_or(connected, |at| at.0);
        Ok(Self { first, connected, disconnected, count: table.count, until })
    }

    /// The outages of the link with the turns `place`, `place + of`, and so on.
    fn outages(&self, place: u64, of: u64) -> Vec<Outage> {
        let mut outages = Vec::new();
        let mut free_from = Instant::ZERO;
        let mut begin = Instant::ZERO;
        for turn in 0.. {
            let last = self.count == Some(turn);
            let end = if turn == 0 { begin + self.first } else { begin + self.connected };
            if turn % of == place {
                if begin > free_from {
                    outages.push(Outage { down: free_from, up: begin });
                }
                if last {
                    return outages;
                }
                free_from = end;
            }
            if last || end > self.until {
                break;
            }
            begin = end + self.disconnected;
        }
        outages.push(Outage { down: free_from, up: Instant::FAR_FUTURE });
        outages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outages(count: Option<u64>, disconnected_s: u64, place: u64) -> Vec<(u64, u64)> {
        let seconds = Duration::from_secs;
        let schedule = Schedule {
            first: seconds(4),
            connected: seconds(10),
            disconnected: seconds(disconnected_s),
            count,
            until: Instant::from_secs(50),
        };
        let secs = |at: Instant| if at == Instant::FAR_FUTURE { u64::MAX } else { at.as_millis() / 1000 };
        schedule.outages(place, 2).into_iter().map(|outage| (secs(outage.down), secs(outage.up))).collect()
    }

    #[test]
    fn one_link_is_up_at_a_time_and_none_in_between() {
        // Turns: 0 to 4, 7 to 17, 20 to 30, 33 to 43, 46 to 56.
        assert_eq!(outages(None, 3, 0), [(4, 20), (30, 46), (56, u64::MAX)]);
        assert_eq!(outages(None, 3, 1), [(0, 7), (17, 33), (43, u64::MAX)]);
    }

    #[test]
    fn the_last_turn_stays() {
        assert_eq!(outages(Some(1), 3, 0), [(4, u64::MAX)]);
        assert_eq!(outages(Some(1), 3, 1), [(0, 7)]);
        assert_eq!(outages(Some(2), 3, 0), [(4, 20)]);
        assert_eq!(outages(Some(0), 3, 0), []);
    }

    #[test]
    fn there_may_be_no_time_in_between() {
        assert_eq!(outages(Some(1), 0, 0), [(4, u64::MAX)]);
        assert_eq!(outages(Some(1), 0, 1), [(0, 4)]);
    }
}
