//! Families of runs: those that differ in later outages only. Their common beginning is simulated once, and the world is copied where they
//! part.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_scenario::Scenario;
use holdover_sim::{Ending, World, WorldConfig};

use super::error::SweepError;
use super::journal::Row;
use super::plan::{Cell, Plan, is_of_outages};
use super::schedule::Unit;
use super::single::{row_of, run_to_end};

/// The most runs of a family: the cells of all of them are incomplete together.
const MOST_MEMBERS: usize = 256;

/// A world is not copied closer than this before an outage that not all of a family have: a copy takes as long as the simulation of some tens
/// of milliseconds of a busy link.
const CLOSEST: Duration = Duration::from_millis(50);

/// The scenarios at the points of a worker's last family.
#[derive(Default)]
pub(super) struct Scenarios(BTreeMap<usize, Scenario>);

/// A run of a family.
struct Member {
    unit: Unit,
    config: WorldConfig,
}

/// The most runs of a family for this number of workers: several families for each of them.
pub(super) fn most_members(plan: &Plan, jobs: usize) -> usize {
    let runs = plan.cells().saturating_mul(plan.stop.min as usize);
    (runs / (4 * jobs.max(1))).clamp(1, MOST_MEMBERS)
}

/// The points that differ from this one on axes of outages only, itself included, in order: at most `most`, the same for each of them.
pub(super) fn points_like(plan: &Plan, point: usize, most: usize) -> Vec<usize> {
    let (mut stride, mut within) = (plan.points(), point);
    // The number of values and the stride of each axis of outages, and this point's place among those like it.
    let (mut varied, mut place, mut base) = (Vec::new(), 0, point);
    for axis in plan.sweep.axes() {
        let count = axis.values.len().max(1);
        stride /= count;
        let on_axis = within / stride;
        within %= stride;
        if is_of_outages(&axis.path) {
            varied.push((count, stride));
            place = place * count + on_axis;
            base -= on_axis * stride;
        }
    }
    let all: usize = varied.iter().map(|(count, _)| count).product();
    let first = place / most * most;
    let point_at = |place: usize| {
        let (mut left, mut point) = (place, base);
        for (count, stride) in varied.iter().rev() {
            point += left % count * stride;
            left /= count;
        }
        point
    };
    (first..all.min(first + most)).map(point_at).collect()
}

/// Makes the runs of one variant with one number. `keep` is called with each. Returns how often a world was copied for runs that part;
/// `None` if the runs became unwanted.
pub(super) fn make(
    plan: &Plan,
    units: &[Unit],
    scenarios: &mut Scenarios,
    unwanted: &dyn Fn() -> bool,
    keep: &mut dyn FnMut(Unit, &Row) -> Result<(), SweepError>,
) -> Result<Option<usize>, SweepError> {
    scenarios.keep_only(plan, units);
    let mut members = VecDeque::with_capacity(units.len());
    for &unit in units {
        members.push_back(Member { unit, config: scenarios.world(plan, unit)? });
    }
    let mut growing = Growing { plan, unwanted, keep, branches: Vec::new(), early: Vec::new(), copies: 0 };
    while let Some(head) = members.pop_front() {
        let is_like_head = |member: &Member| head.config.shared_until(&member.config).is_some();
        let (mut family, others): (VecDeque<Member>, VecDeque<Member>) = members.into_iter().partition(is_like_head);
        members = others;
        let world = World::new(head.config.clone())?;
        family.push_front(head);
        growing.branches.push(Branch { world, members: family });
        while let Some(branch) = growing.branches.pop() {
            if !growing.grow(branch)? {
                return Ok(None);
            }
        }
        members.extend(growing.early.drain(..));
    }
    Ok(Some(growing.copies))
}

impl Scenarios {
    fn keep_only(&mut self, plan: &Plan, units: &[Unit]) {
        let points: BTreeSet<usize> = units.iter().map(|unit| plan.cell(unit.cell).point).collect();
        self.0.retain(|point, _| points.contains(point));
    }

    fn world(&mut self, plan: &Plan, unit: Unit) -> Result<WorldConfig, SweepError> {
        let Cell { point, variant } = plan.cell(unit.cell);
        let scenario = match self.0.entry(point) {
            Entry::Occupied(parsed) => parsed.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(plan.scenario.at(&plan.point(point))?),
        };
        Ok(plan.world(scenario, variant, unit.run)?)
    }
}

struct Growing<'a> {
    plan: &'a Plan,
    unwanted: &'a dyn Fn() -> bool,
    keep: &'a mut dyn FnMut(Unit, &Row) -> Result<(), SweepError>,
    /// Copies of worlds that are still to be continued.
    branches: Vec<Branch>,
    /// Runs that differ from the others before a world can be copied: they start from the beginning, together.
    early: Vec<Member>,
    copies: usize,
}

/// Runs and the state that they have in common: the world is that of the first of them.
struct Branch {
    world: World,
    members: VecDeque<Member>,
}

impl Growing<'_> {
    /// Makes the first run of a branch, and a branch of each group of runs that part from it at the same time; `false` if the runs became
    /// unwanted.
    fn grow(&mut self, Branch { mut world, mut members }: Branch) -> Result<bool, SweepError> {
        let Some(head) = members.pop_front() else { return Ok(true) };
        let parting = |member: Member| (head.config.shared_until(&member.config).unwrap_or(Instant::ZERO), member);
        let mut others: Vec<(Instant, Member)> = members.into_iter().map(parting).collect();
        others.sort_by_key(|(at, _)| *at);
        while let Some(&(at, _)) = others.first() {
            let ending;
            (world, ending) = advance_before(world, at.min(head.config.time_limit));
            if (self.unwanted)() {
                return Ok(false);
            }
            if let Some(ending) = ending {
                // The runs are over before they could part.
                for (_, member) in others.drain(..) {
                    match self.copy(&world, &member) {
                        Some(same) => self.keep(&member, &same, ending)?,
                        None => self.early.push(member),
                    }
                }
                self.keep(&head, &world, ending)?;
                return Ok(true);
            }
            let count = others.partition_point(|(other, _)| *other == at);
            let parting: VecDeque<Member> = others.drain(..count).map(|(_, member)| member).collect();
            match parting.front().and_then(|member| self.copy(&world, member)) {
                Some(world) => self.branches.push(Branch { world, members: parting }),
                None => self.early.extend(parting),
            }
        }
        match run_to_end(&mut world, self.unwanted) {
            Some(ending) => self.keep(&head, &world, ending).map(|()| true),
            None => Ok(false),
        }
    }

    fn copy(&mut self, world: &World, member: &Member) -> Option<World> {
        let copy = world.fork(&member.config)?;
        self.copies += 1;
        Some(copy)
    }

    fn keep(&mut self, member: &Member, world: &World, ending: Ending) -> Result<(), SweepError> {
        (self.keep)(member.unit, &row_of(self.plan, member.unit, world, ending))
    }
}

/// Runs a world as far as it depends on nothing from `until` on, to within [`CLOSEST`] and what its links have planned ahead; with the ending
/// if all flows end before. A world that cannot be copied stays where it is.
fn advance_before(mut world: World, until: Instant) -> (World, Option<Ending>) {
    loop {
        // The time that links plan ahead may grow by a quarter of the rest.
        let step = until.saturating_since(world.depends_on_outages_to()) / 4 * 3;
        if step < CLOSEST {
            return (world, None);
        }
        let Some(before) = world.try_copy() else { return (world, None) };
        let ending = world.advance_to(world.now() + step);
        // No event is left in this run. Others of the family may still have an outage.
        if world.depends_on_outages_to() >= until || ending == Some(Ending::Idle) {
            return (before, None);
        }
        if ending.is_some() {
            return (world, ending);
        }
    }
}
