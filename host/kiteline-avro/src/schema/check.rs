//! Checks of the whole graph: every type has a finite value, which records can contain themselves, and the second opinion of
//! the apache-avro parser. None of them recurses: a chain of ten thousand records is legal.

use serde_json::Value;

use super::{SchemaKind, SchemaNode};
use crate::error::SchemaError;

/// Fewest bytes of a value, by node; refuses records without a finite value (case 41).
///
/// A type is finite once the types that it cannot do without are: all fields of a record, any branch of a union, nothing for an array
/// or a map. Types become finite in that order, each once.
pub(super) fn finite(nodes: &[SchemaNode]) -> Result<Vec<u32>, SchemaError> {
    let mut holders: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
    let mut waits: Vec<u32> = vec![0; nodes.len()];
    let mut bytes_min: Vec<Option<u32>> = vec![None; nodes.len()];
    let mut ready = Vec::new();
    for (id, node) in nodes.iter().enumerate() {
        let needs: Vec<u32> = match &node.kind {
            SchemaKind::Record(record) => record.fields.iter().map(|field| field.schema.0).collect(),
            SchemaKind::Union(branches) => branches.iter().map(|branch| branch.0).collect(),
            _ => Vec::new(),
        };
        waits[id] = match node.kind {
            SchemaKind::Union(_) => 1,
            _ => needs.len() as u32,
        };
        for need in needs {
            holders[need as usize].push(id as u32);
        }
        if waits[id] == 0 {
            ready.push(id as u32);
        }
    }
    while let Some(id) = ready.pop() {
        bytes_min[id as usize] = Some(bytes_min_of(&nodes[id as usize], &bytes_min));
        for &holder in &holders[id as usize] {
            let wait = &mut waits[holder as usize];
            if *wait > 0 {
                *wait -= 1;
                if *wait == 0 {
                    ready.push(holder);
                }
            }
        }
    }
    for (node, bytes) in nodes.iter().zip(&bytes_min) {
        if let (SchemaKind::Record(record), None) = (&node.kind, bytes) {
            return Err(SchemaError::Infinite { name: record.name.full.to_string() });
        }
    }
    Ok(bytes_min.into_iter().map(|bytes| bytes.unwrap_or(0)).collect())
}

fn bytes_min_of(node: &SchemaNode, known: &[Option<u32>]) -> u32 {
    match &node.kind {
        SchemaKind::Null => 0,
        SchemaKind::Float => 4,
        SchemaKind::Double => 8,
        SchemaKind::Fixed(fixed) => fixed.size,
        SchemaKind::Record(record) => {
            record.fields.iter().map(|field| known[field.schema.0 as usize].unwrap_or(0)).fold(0, u32::saturating_add)
        }
        // a union's branches may not all be known yet, and its index alone is a bound
        _ => 1,
    }
}

/// By node: a record that can contain itself.
pub(super) fn recursive(nodes: &[SchemaNode]) -> Vec<bool> {
    let edges: Vec<Vec<u32>> = nodes
        .iter()
        .map(|node| match &node.kind {
            SchemaKind::Record(record) => record.fields.iter().map(|field| field.schema.0).collect(),
            SchemaKind::Union(branches) => branches.iter().map(|branch| branch.0).collect(),
            SchemaKind::Array(inner) | SchemaKind::Map(inner) => vec![inner.0],
            _ => Vec::new(),
        })
        .collect();
    let mut cyclic = cyclic(&edges);
    for (flag, node) in cyclic.iter_mut().zip(nodes) {
        *flag = *flag && matches!(node.kind, SchemaKind::Record(_));
    }
    cyclic
}

/// Which nodes of a graph lie on a cycle: Tarjan's strongly connected components, with a stack of its own.
pub(crate) fn cyclic(edges: &[Vec<u32>]) -> Vec<bool> {
    const UNSEEN: u32 = u32::MAX;
    let mut order = vec![UNSEEN; edges.len()];
    let mut low = vec![0u32; edges.len()];
    let mut open = vec![false; edges.len()];
    let mut result = vec![false; edges.len()];
    let mut component: Vec<u32> = Vec::new();
    let mut walk: Vec<(u32, usize)> = Vec::new();
    let mut count = 0;
    for start in 0..edges.len() as u32 {
        if order[start as usize] != UNSEEN {
            continue;
        }
        walk.push((start, 0));
        while let Some((node, next)) = walk.pop() {
            let at = node as usize;
            if next == 0 {
                order[at] = count;
                low[at] = count;
                count += 1;
                open[at] = true;
                component.push(node);
            } else {
                // back from the edge before
                let child = edges[at][next - 1] as usize;
                if open[child] {
                    low[at] = low[at].min(low[child]);
                }
            }
            if let Some(&child) = edges[at].get(next) {
                walk.push((node, next + 1));
                if order[child as usize] == UNSEEN {
                    walk.push((child, 0));
                } else if open[child as usize] {
                    low[at] = low[at].min(order[child as usize]);
                }
            } else if low[at] == order[at] {
                let from = component.iter().rposition(|&member| member == node).unwrap_or(0);
                let members = component.split_off(from);
                let cycle = members.len() > 1 || edges[at].contains(&node);
                for member in members {
                    open[member as usize] = false;
                    result[member as usize] = cycle;
                }
            }
        }
    }
    result
}

/// What the apache-avro parser says of the same schema. Defaults, aliases of fields and logical types are taken out before: it refuses a
/// union's default of another branch than the first (case 46) and an alias that is another field's name, and a wrong logical
/// type is to be ignored, not refused.
pub(super) fn second_opinion(mut value: Value) -> Result<(), SchemaError> {
    strip(&mut value);
    match apache_avro::Schema::parse(&value) {
        Ok(_) => Ok(()),
        Err(source) => Err(SchemaError::Parser { source: Box::new(source) }),
    }
}

/// Goes as deep as the JSON does, which `parse` has bounded.
fn strip(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Object(map) => {
            map.remove("logicalType");
            for key in ["items", "values", "type"] {
                if let Some(inner) = map.get_mut(key) {
                    strip(inner);
                }
            }
            if let Some(Value::Array(fields)) = map.get_mut("fields") {
                for field in fields {
                    if let Value::Object(field) = field {
                        field.remove("default");
                        field.remove("aliases");
                        if let Some(inner) = field.get_mut("type") {
                            strip(inner);
                        }
                    }
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::cyclic;

    #[test]
    fn cycles_are_found_without_what_leads_to_them() {
        // 0 -> 1 <-> 2 -> 3 -> 3, 4 between the two cycles and on neither
        let edges = vec![vec![1], vec![2], vec![1, 3, 4], vec![3], vec![3]];
        assert_eq!(cyclic(&edges), [false, true, true, true, false]);
    }

    #[test]
    fn long_chains_take_no_stack() {
        let edges: Vec<Vec<u32>> = (0..100_000u32).map(|node| vec![(node + 1) % 100_000]).collect();
        assert!(cyclic(&edges).iter().all(|&on| on));
    }
}
