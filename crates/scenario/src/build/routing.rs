//! The routing of a scenario.

use holdover_sim::{LinkBetween, LinkDetection, LinkId, Role, Route, Routing};

use super::nodes::Nodes;
use crate::error::ErrorKind;
use crate::file::{self, ScenarioFile};
use crate::problem::{Problem, Under};
use crate::word::OrNone;

/// The name of the default route.
const DEFAULT: &str = "default";

/// The routing of a scenario. A problem lies below the root of the file.
pub(crate) fn of(file: &ScenarioFile, nodes: &Nodes, links: &[LinkBetween]) -> Result<Routing, Problem> {
    let mut routes = Vec::new();
    for (index, router) in file.routers.iter().enumerate() {
        for (number, table) in router.routes.iter().enumerate() {
            let built = route(file, &router.name, table, nodes, links);
            routes.push(built.under_index(number).under("routes").under_index(index).under("router")?);
        }
    }
    let detection = match &file.routing {
        None => (!routes.is_empty()).then(LinkDetection::default),
        Some(table) => detection(table).under("routing")?,
    };
    Ok(Routing { detection, routes })
}

fn detection(table: &file::Routing) -> Result<Option<LinkDetection>, Problem> {
    match (&table.detection, table.recovery) {
        (Some(OrNone(None)), Some(_)) => {
            let message = "routers do not follow links, for \"detection\" is \"none\"";
            Err(Problem::conflict(message)).under("recovery")
        }
        (Some(OrNone(None)), None) => Ok(None),
        (given, recovery) => {
            let given = given.as_ref().and_then(|OrNone(time)| *time);
            let down_after = given.map_or(LinkDetection::default().down_after, |time| time.0);
            Ok(Some(LinkDetection { down_after, up_after: recovery.map_or(down_after, |time| time.0) }))
        }
    }
}

fn route(
    file: &ScenarioFile,
    router: &str,
    table: &file::Route,
    nodes: &Nodes,
    links: &[LinkBetween],
) -> Result<Route, Problem> {
    let node = nodes.router(router)?;
    let to = match table.to.as_str() {
        DEFAULT => None,
        name => Some(nodes.node(name).under("to")?),
    };
    let moves = file.mobiles.iter().any(|mobile| mobile.host == table.to);
    if moves {
        let message = format!("\"{}\" moves between cells; routes lead to hosts with links and to routers", table.to);
        return Err(Problem::conflict(message)).under("to");
    }
    let own = |link: &LinkBetween| link.a == node || link.b == node;
    let found = links.iter().position(|link| link.name == table.link && own(link)).ok_or_else(|| {
        Problem::unknown_name(
            "link of this router",
            &table.link,
            links.iter().filter(|link| own(link)).map(|link| link.name.as_str()),
        )
    });
    let index = found.under("link")?;
    let other = if links[index].a == node { links[index].b } else { links[index].a };
    if nodes.role(other) == Role::Host && to != Some(other) {
        let message = format!("\"{}\" is at the other end, a host, which forwards nothing", nodes.name(other));
        return Err(Problem::new(ErrorKind::Conflict, message)).under("link");
    }
    Ok(Route { router: node, to, link: LinkId(index as u32), metric: table.metric.unwrap_or(0) })
}
