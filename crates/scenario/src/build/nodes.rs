//! Hosts and routers, and which of them can reach each other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdover_sim::{LinkBetween, NodeConfig, NodeId, Role};
use holdover_tcp::Config;

use super::{check_name, check_new, stack};
use crate::error::ErrorKind;
use crate::file::ScenarioFile;
use crate::problem::{Problem, Under};

/// The nodes of a world by name: hosts first, then routers, each in the order of the file.
pub(crate) struct Nodes {
    pub(crate) configs: Vec<NodeConfig>,
    by_name: BTreeMap<String, NodeId>,
    /// The stack of each host.
    stacks: Vec<Config>,
}

impl Nodes {
    pub(crate) fn new(file: &ScenarioFile, default_stack: &Config) -> Result<Self, Problem> {
        let mut nodes = Self { configs: Vec::new(), by_name: BTreeMap::new(), stacks: Vec::new() };
        for (index, host) in file.hosts.iter().enumerate() {
            nodes.add(&host.name, Role::Host).under_index(index).under("host")?;
            let stack = stack::changed(default_stack, host.stack.as_ref());
            nodes.stacks.push(stack.under("stack").under_index(index).under("host")?);
        }
        for (index, router) in file.routers.iter().enumerate() {
            nodes.add(&router.name, Role::Router).under_index(index).under("router")?;
        }
        Ok(nodes)
    }

    fn add(&mut self, name: &str, role: Role) -> Result<(), Problem> {
        check_name(name)?;
        check_new("host or router", name, self.by_name.keys().map(String::as_str))?;
        self.by_name.insert(name.to_owned(), NodeId(self.configs.len() as u32));
        self.configs.push(NodeConfig { name: name.to_owned(), role });
        Ok(())
    }

    /// The host or router called `name`.
    pub(crate) fn node(&self, name: &str) -> Result<NodeId, Problem> {
        let known = || self.configs.iter().map(|node| node.name.as_str());
        self.by_name.get(name).copied().ok_or_else(|| Problem::unknown_name("host or router", name, known()))
    }

    /// The host called `name`.
    pub(crate) fn host(&self, name: &str) -> Result<NodeId, Problem> {
        let hosts = self.configs.iter().filter(|node| node.role == Role::Host).map(|node| node.name.as_str());
        match self.by_name.get(name) {
            Some(&id) if self.role(id) == Role::Host => Ok(id),
            Some(_) => {
                let message = format!("\"{name}\" is a router; applications run on hosts");
                Err(Problem::new(ErrorKind::BadValue, message))
            }
            None => Err(Problem::unknown_name("host", name, hosts)),
        }
    }

    pub(crate) fn name(&self, id: NodeId) -> &str {
        &self.configs[id.0 as usize].name
    }

    fn role(&self, id: NodeId) -> Role {
        self.configs[id.0 as usize].role
    }

    /// The stack of a host.
    pub(crate) fn stack(&self, host: NodeId) -> &Config {
        &self.stacks[host.0 as usize]
    }

    /// Checks that every node has a link.
    pub(crate) fn check_links(&self, file: &ScenarioFile, links: &[LinkBetween]) -> Result<(), Problem> {
        let linked: BTreeSet<NodeId> = links.iter().flat_map(|link| [link.a, link.b]).collect();
        for (id, node) in (0..).map(NodeId).zip(&self.configs) {
            if !linked.contains(&id) {
                let message = format!("nothing reaches \"{}\": no [[link]] is \"between\" it and another", node.name);
                let problem = Problem::new(ErrorKind::Unreachable, message).under("name");
                let index = id.0 as usize;
                return Err(match index.checked_sub(file.hosts.len()) {
                    None => problem.under_index(index).under("host"),
                    Some(index) => problem.under_index(index).under("router"),
                });
            }
        }
        Ok(())
    }

    /// All that packets of `from` can reach; hosts do not forward.
    pub(crate) fn reached_from(&self, from: NodeId, links: &[LinkBetween]) -> BTreeSet<NodeId> {
        let mut neighbours: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
        for link in links {
            neighbours.entry(link.a).or_default().push(link.b);
            neighbours.entry(link.b).or_default().push(link.a);
        }
        let mut reached = BTreeSet::from([from]);
        let mut waiting = VecDeque::from([from]);
        while let Some(node) = waiting.pop_front() {
            if node != from && self.role(node) == Role::Host {
                continue;
            }
            for &next in neighbours.get(&node).into_iter().flatten() {
                if reached.insert(next) {
                    waiting.push_back(next);
                }
            }
        }
        reached
    }
}
