//! What the layers of a model decided, as a tree: layer, nested choice, algorithm. Each leaf has a bar.
//!
//! Places are pixels. A bar is the algorithm's speed against the fastest of its layer, as times of layers differ by a
//! hundred times.

use super::select::WIDTH;
use super::{Area, BLUE, Drawn, GREY, INK, RULE, WIDE, font, lines};
use crate::select::{GroupTimes, Layer, LayerTime, Selection, equal_to};
use plotters::prelude::{Color, PathElement, RGBColor, Rectangle, Text, WHITE};
use plotters::style::text_anchor::{HPos, VPos};

/// A leaf, the space between layers, and the lines above all of them.
const LEAF: i32 = 15;
const GAP: i32 = 11;
const TOP: i32 = 60;
/// Names of layers that are longer have several lines.
const LETTERS: usize = 38;
/// Where nodes and edges are: the ends of rows, and the room for the edges between two columns.
const MARGIN: i32 = 14;
const EDGES: i32 = 34;
/// The room behind the bars for their times.
const TIMES: i32 = 120;
/// Edges to what was not chosen.
const FAINT: RGBColor = RGBColor(185, 185, 185);

/// What a tree chooses among at one place.
struct Leaf<'a> {
    time: &'a LayerTime,
    chosen: bool,
    y: i32,
}

impl Leaf<'_> {
    fn family(&self) -> String {
        self.time.families.join(" > ")
    }
}

/// One tree: a layer, or steps that may run together.
struct Tree<'a> {
    title: Vec<String>,
    leaves: Vec<Leaf<'a>>,
    top: i32,
    height: i32,
}

impl Tree<'_> {
    fn middle(&self) -> i32 {
        self.top + (self.height - GAP) / 2
    }

    /// Each nested choice with the place of its node: the middle of its leaves.
    fn families(&self) -> Vec<(String, i32)> {
        let mut found: Vec<(String, i32)> = Vec::new();
        for name in self.leaves.iter().map(Leaf::family) {
            if !name.is_empty() && found.iter().all(|f| f.0 != name) {
                let own = self.leaves.iter().filter(|l| l.family() == name);
                let places: Vec<i32> = own.map(|l| l.y).collect();
                let middle = (places[0] + places[places.len() - 1]) / 2;
                found.push((name, middle));
            }
        }
        found
    }

    fn least_ms(&self) -> f64 {
        let times = self.leaves.iter().filter_map(|l| l.time.median_ms);
        times.fold(f64::INFINITY, f64::min)
    }
}

/// How high the trees of a selection are.
pub(super) fn height(s: &Selection) -> u32 {
    let trees = trees(s);
    let end = trees.last().map_or(TOP, |t| t.top + t.height);
    (end + GAP) as u32
}

/// All trees, one below the other.
fn trees(s: &Selection) -> Vec<Tree<'_>> {
    let slots = slots(s);
    let mut found = Vec::new();
    let mut top = TOP;
    for l in &s.layers {
        let tree = of_layer(l, &slots, top);
        top += tree.height;
        found.push(tree);
    }
    for g in &s.groups {
        let tree = of_group(g, top);
        top += tree.height;
        found.push(tree);
    }
    found
}

/// Algorithms that have a place in every layer, blank where a layer does not have them: those that half of the
/// layers have, the members of a nested choice beside each other.
fn slots(s: &Selection) -> Vec<&str> {
    let mut names: Vec<(&str, String)> = Vec::new();
    for t in s.layers.iter().flat_map(|l| &l.alternatives) {
        if names.iter().all(|(name, _)| *name != t.algorithm) {
            names.push((&t.algorithm, t.families.join(" > ")));
        }
    }
    let has = |l: &&Layer, name: &str| l.of_algorithm(name).is_some();
    names
        .retain(|(name, _)| 2 * s.layers.iter().filter(|l| has(l, name)).count() >= s.layers.len());
    let first = |family: &str| names.iter().position(|(_, f)| f == family);
    let mut order: Vec<(usize, &str)> = Vec::new();
    for (at, (name, family)) in names.iter().enumerate() {
        let place = match family.is_empty() {
            true => at,
            false => first(family).unwrap_or(at),
        };
        order.push((place, name));
    }
    order.sort_unstable();
    order.into_iter().map(|(_, name)| name).collect()
}

fn of_layer<'a>(l: &'a Layer, slots: &[&str], top: i32) -> Tree<'a> {
    let mut leaves = Vec::new();
    let mut add = |name: &str, slot: usize| {
        let found = l.of_algorithm(name);
        leaves.extend(found.map(|(at, time)| Leaf {
            time,
            chosen: at == l.chosen,
            y: top + LEAF / 2 + slot as i32 * LEAF,
        }));
    };
    let mut own: Vec<&str> = Vec::new();
    for t in &l.alternatives {
        if !slots.contains(&&*t.algorithm) && !own.contains(&&*t.algorithm) {
            own.push(&t.algorithm);
        }
    }
    for (slot, name) in slots.iter().chain(&own).enumerate() {
        add(name, slot);
    }
    tree(
        &equal_to(&l.step, l.equal),
        leaves,
        slots.len() + own.len(),
        top,
    )
}

fn of_group(g: &GroupTimes, top: i32) -> Tree<'_> {
    let leaf = |(at, time)| Leaf {
        time,
        chosen: at == g.chosen,
        y: top + LEAF / 2 + at as i32 * LEAF,
    };
    let leaves = g.alternatives.iter().enumerate().map(leaf).collect();
    tree(
        &equal_to(&g.steps, g.equal),
        leaves,
        g.alternatives.len(),
        top,
    )
}

fn tree<'a>(title: &str, leaves: Vec<Leaf<'a>>, slots: usize, top: i32) -> Tree<'a> {
    let title = lines(title, LETTERS);
    let rows = slots.max(title.len()) as i32;
    Tree {
        title,
        leaves,
        top,
        height: rows * LEAF + GAP,
    }
}

/// Where the columns begin, and the room for the longest bar.
struct Columns {
    /// The end of the layers' names.
    layer: i32,
    family: i32,
    /// The end of nested choices.
    nested: i32,
    leaf: i32,
    bar: i32,
    bar_end: i32,
}

fn columns(trees: &[Tree<'_>]) -> Columns {
    let room = |letters: Option<usize>| letters.map_or(0, |n| n as i32 * WIDE);
    let titles = trees.iter().flat_map(|t| &t.title);
    let layer = MARGIN + room(titles.map(|t| t.chars().count()).max());
    let families = trees.iter().flat_map(Tree::families);
    let family = layer + EDGES;
    let nested = match families.map(|f| f.0.chars().count()).max() {
        Some(letters) => family + room(Some(letters)) + 12,
        None => layer,
    };
    let leaves = || trees.iter().flat_map(|t| &t.leaves);
    let longest = leaves().map(|l| l.time.algorithm.chars().count()).max();
    let leaf = nested + EDGES;
    let bar = leaf + room(longest) + 10;
    Columns {
        layer,
        family,
        nested,
        leaf,
        bar,
        bar_end: (bar + LONGEST).max(WIDTH as i32 - TIMES),
    }
}

/// Pixels of the bar of the fastest algorithm, at least.
const LONGEST: i32 = 300;

/// The width that a selection's trees need.
pub(super) fn width(s: &Selection) -> u32 {
    (columns(&trees(s)).bar_end + TIMES) as u32
}

pub(super) fn decisions(area: &Area<'_>, s: &Selection, what: &str) -> Drawn {
    let trees = trees(s);
    let c = columns(&trees);
    let bottom = trees.last().map_or(TOP, |t| t.top + t.height - GAP / 2);
    let head = font(13, HPos::Left, VPos::Center);
    let text = format!("What {what} decided: layer, nested choice, algorithm");
    area.draw(&Text::new(text, (MARGIN, 26), head.clone()))?;
    let small = font(12, HPos::Center, VPos::Center);
    for quarter in 0..=4 {
        let x = c.bar + (c.bar_end - c.bar) * quarter / 4;
        let line = vec![(x, TOP - 6), (x, bottom)];
        area.draw(&PathElement::new(line, RULE.stroke_width(1)))?;
        let percent = format!("{}%", 25 * quarter);
        area.draw(&Text::new(percent, (x, TOP - 14), small.clone()))?;
    }
    let axis = "speed against the layer's fastest, and ms";
    area.draw(&Text::new(
        axis,
        (c.bar_end + TIMES - MARGIN, 26),
        font(12, HPos::Right, VPos::Center),
    ))?;
    for t in &trees {
        edges(area, t, &c)?;
        nodes(area, t, &c)?;
        bars(area, t, &c)?;
    }
    Ok(())
}

/// The ways to what was not chosen first, so that nothing lies on the way to what was.
fn edges(area: &Area<'_>, t: &Tree<'_>, c: &Columns) -> Drawn {
    let families = t.families();
    let mut ways: Vec<(bool, Vec<(i32, i32)>)> = Vec::new();
    let bus = c.layer + EDGES / 2;
    let start = (c.layer + 6, t.middle());
    for leaf in &t.leaves {
        let from = families.iter().find(|(name, _)| *name == leaf.family());
        let end = (c.leaf - 5, leaf.y);
        match from {
            None => ways.push((leaf.chosen, vec![start, (bus, start.1), (bus, end.1), end])),
            Some((_, y)) => {
                let to = vec![start, (bus, start.1), (bus, *y), (c.family, *y)];
                ways.push((leaf.chosen, to));
                let inner = c.nested + EDGES / 2;
                let on = vec![(c.nested, *y), (inner, *y), (inner, end.1), end];
                ways.push((leaf.chosen, on));
            }
        }
    }
    ways.sort_by_key(|(chosen, _)| *chosen);
    for (chosen, way) in ways {
        let (color, wide) = if chosen { (BLUE, 2) } else { (FAINT, 1) };
        area.draw(&PathElement::new(way, color.stroke_width(wide)))?;
    }
    Ok(())
}

fn nodes(area: &Area<'_>, t: &Tree<'_>, c: &Columns) -> Drawn {
    let style = font(12, HPos::Right, VPos::Center);
    let first = t.middle() - (t.title.len() as i32 - 1) * LEAF / 2;
    for (i, line) in t.title.iter().enumerate() {
        let at = (c.layer, first + i as i32 * LEAF);
        area.draw(&Text::new(line.clone(), at, style.clone()))?;
    }
    for (name, y) in t.families() {
        let chosen = t.leaves.iter().any(|l| l.chosen && l.family() == name);
        let (color, wide) = if chosen { (BLUE, 2) } else { (FAINT, 1) };
        let corners = [(c.family, y - 8), (c.nested, y + 8)];
        area.draw(&Rectangle::new(corners, WHITE.filled()))?;
        area.draw(&Rectangle::new(corners, color.stroke_width(wide)))?;
        let style = font(12, HPos::Center, VPos::Center);
        area.draw(&Text::new(name, ((c.family + c.nested) / 2, y), style))?;
    }
    let style = font(12, HPos::Left, VPos::Center);
    for l in &t.leaves {
        let color = if l.chosen { BLUE } else { INK };
        let name = l.time.algorithm.clone();
        area.draw(&Text::new(name, (c.leaf, l.y), style.color(&color)))?;
    }
    Ok(())
}

fn bars(area: &Area<'_>, t: &Tree<'_>, c: &Columns) -> Drawn {
    let (least, longest) = (t.least_ms(), f64::from(c.bar_end - c.bar));
    let style = font(12, HPos::Left, VPos::Center);
    for l in &t.leaves {
        let (long, text) = match l.time.median_ms {
            Some(ms) => ((longest * least / ms) as i32, format!("{ms:.3}")),
            None => (0, "not timed".to_string()),
        };
        let color = if l.chosen { BLUE } else { GREY };
        let corners = [(c.bar, l.y - 5), (c.bar + long, l.y + 5)];
        area.draw(&Rectangle::new(corners, color.filled()))?;
        let text = match l.chosen {
            true => format!("{text}, chosen"),
            false => text,
        };
        // No line of the scale goes through the number.
        let x = c.bar + long + 4;
        let behind = [
            (x, l.y - 6),
            (x + text.chars().count() as i32 * WIDE, l.y + 6),
        ];
        area.draw(&Rectangle::new(behind, WHITE.filled()))?;
        area.draw(&Text::new(text, (x + 2, l.y), style.color(&color)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
