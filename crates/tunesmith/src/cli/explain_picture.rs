//! `explain --graph FILE.svg`: the steps of a model as a picture, one row a step.
//!
//! A tensor is a line that runs down in a lane of its own, from the step that writes it to the last one that reads
//! it. So the picture of a deep model is long, and as wide as there are tensors that wait at once. In a training step
//! these are the results that the gradients need.

use super::explain::Explanation;
use super::explain_graph::{Edge, Writer, edges, named_inputs};
use super::html::escaped;
use super::trace::shape;
use runtime::CompiledModel;

/// How every picture begins.
pub const START: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"steps\"";

/// Pixels of a row, of a lane, of a node and of a bar.
const ROW: usize = 22;
const LANE: usize = 14;
const RADIUS: usize = 5;
const BAR: usize = 120;
const TOP: usize = 40;
/// Of a character of text, about.
const CHARACTER: usize = 7;

/// One row: an input, or a step.
struct Row {
    writer: Writer,
    lane: usize,
    text: String,
    title: String,
    /// Of the time; none of an input.
    share: Option<f64>,
}

/// The picture of a model that was measured.
pub fn picture(r: &Explanation, compiled: &CompiledModel) -> String {
    let edges = edges(compiled);
    let rows = rows(r, compiled, &edges);
    let lanes = rows.iter().map(|row| row.lane + 1).max().unwrap_or(1);
    let text_x = LANE * (lanes + 1) + BAR + 12;
    let longest = rows.iter().map(|row| row.text.chars().count()).max();
    let title = format!("{}, {:.3} ms", r.model, r.latency.median_ms);
    let characters = longest.unwrap_or(0).max(title.chars().count());
    let (width, height) = (
        text_x + CHARACTER * characters,
        TOP + ROW * (rows.len() + 1),
    );
    let mut out = format!(
        "{START} width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{LANE}\" y=\"20\" font-size=\"15\" fill=\"#1d2430\">{}</text>\n",
        escaped(&title)
    );
    for e in &edges {
        out += &line(&rows, e, compiled);
    }
    let most = rows.iter().filter_map(|row| row.share).fold(0.0, f64::max);
    for (at, row) in rows.iter().enumerate() {
        out += &node(row, at, LANE * (lanes + 1), text_x, most);
    }
    out + "</svg>\n"
}

/// Inputs and steps with their lanes, from the top.
fn rows(r: &Explanation, compiled: &CompiledModel, edges: &[Edge]) -> Vec<Row> {
    let inputs = named_inputs(compiled).map(|(i, info)| {
        let text = format!("{} {} {}", info.name, shape(&info.shape), info.dtype);
        (Writer::Input(i), text, "an input of the model".into(), None)
    });
    let steps = r.layers.iter().map(|l| {
        let text = format!(
            "{:.1}%  {:.3} ms  {} {}, {}",
            100.0 * l.share,
            l.time.median_ms,
            l.index,
            l.operator,
            l.algorithm
        );
        (Writer::Step(l.index), text, l.name.clone(), Some(l.share))
    });
    // Who holds each lane, and until which step.
    let mut held: Vec<(Writer, usize)> = Vec::new();
    let row = |(writer, text, title, share): (Writer, String, String, Option<f64>)| {
        let last = |w: Writer| edges.iter().filter(|e| e.from == w).map(|e| e.to).max();
        let now = match writer {
            Writer::Input(_) => 0,
            Writer::Step(s) => s,
        };
        // A step goes on in the lane of a tensor that it reads last.
        let ends = |(w, until): &(Writer, usize)| {
            *until == now
                && edges
                    .iter()
                    .any(|e| e.from == *w && Writer::Step(e.to) == writer)
        };
        let free = |(_, until): &(Writer, usize)| match writer {
            Writer::Input(_) => false,
            Writer::Step(s) => *until < s,
        };
        let lane = held.iter().position(ends);
        let lane = lane
            .or_else(|| held.iter().position(free))
            .unwrap_or(held.len());
        let holds = (writer, last(writer).unwrap_or(now));
        match held.get_mut(lane) {
            Some(place) => *place = holds,
            None => held.push(holds),
        }
        Row {
            writer,
            lane,
            text,
            title,
            share,
        }
    };
    inputs.chain(steps).map(row).collect()
}

fn x(row: &Row) -> usize {
    LANE * (row.lane + 1)
}

fn y(at: usize) -> usize {
    TOP + ROW * at + ROW / 2
}

/// The line of a tensor to one of its readers: down in the lane of its writer, then over.
fn line(rows: &[Row], e: &Edge, compiled: &CompiledModel) -> String {
    let place = |w: Writer| rows.iter().position(|row| row.writer == w);
    let (Some(from), Some(to)) = (place(e.from), place(Writer::Step(e.to))) else {
        return String::new();
    };
    let (x0, y0, x1, y1) = (x(&rows[from]), y(from), x(&rows[to]), y(to));
    let turn = y1 - ROW;
    let middle = y1 - ROW / 2;
    let info = compiled.tensor(e.tensor);
    format!(
        "<path d=\"M{x0} {y0}L{x0} {turn}C{x0} {middle} {x1} {middle} {x1} {y1}\" fill=\"none\" \
         stroke=\"#9aa7b8\" stroke-width=\"1.5\"><title>{}</title></path>\n",
        escaped(&format!(
            "{} {} {}",
            info.name,
            shape(&info.shape),
            info.dtype
        ))
    )
}

/// The mark of a row, the bar of its share, and its text.
fn node(row: &Row, at: usize, bar_x: usize, text_x: usize, most: f64) -> String {
    let (x, y) = (x(row), y(at));
    let part = row.share.unwrap_or(0.0) / most.max(f64::MIN_POSITIVE);
    // From white to red by the share.
    let other = (230.0 - 190.0 * part) as u8;
    let colour = match row.share {
        Some(_) => format!("#ff{other:02x}{other:02x}"),
        None => "#ddddff".into(),
    };
    let (bar, bar_y, text_y) = ((BAR as f64 * part).round(), y - RADIUS, y + 4);
    format!(
        "<g><title>{}</title><rect x=\"{bar_x}\" y=\"{bar_y}\" width=\"{bar}\" height=\"{}\" \
         fill=\"{colour}\"/><circle cx=\"{x}\" cy=\"{y}\" r=\"{RADIUS}\" fill=\"{colour}\" \
         stroke=\"#5a6577\"/><text x=\"{text_x}\" y=\"{text_y}\" fill=\"#1d2430\">{}</text></g>\n",
        escaped(&row.title),
        2 * RADIUS,
        escaped(&row.text)
    )
}
