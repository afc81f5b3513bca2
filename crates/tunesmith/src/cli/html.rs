//! Pages of figures for browsers: one file each, with its style and its pictures in it.
//!
//! Pictures are SVG. Every point and bar has its figures as a title, which a browser shows where
//! the pointer is.

use std::fmt::Write;

/// How every page begins; by this a later one may replace it.
pub const START: &str = "<!doctype html>\n<!-- tunesmith -->\n";

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;color:#1d2430;background:#fff;\
max-width:62rem;margin:2rem auto;padding:0 1rem}h1{font-size:1.5rem;margin-bottom:.3rem}\
h2{font-size:1.1rem;margin:2rem 0 .4rem}p{margin:.3rem 0}.lead{font-size:1.15rem}\
.note{color:#5a6577}table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid #e4e8ee}\
td.n,th.n{text-align:right}svg{display:block;max-width:100%;height:auto}\
svg text{font:12px system-ui,sans-serif;fill:#5a6577}svg .name{fill:#1d2430}";

/// Text with what HTML means something by replaced.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c => out.push(c),
        }
    }
    out
}

/// A page in the making.
pub struct Page(String);

impl Page {
    pub fn new(title: &str) -> Page {
        let title = escaped(title);
        Page(format!(
            "{START}<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
             <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head>\
             <body>\n<h1>{title}</h1>\n"
        ))
    }

    pub fn lead(&mut self, text: &str) {
        self.0 += &format!("<p class=\"lead\">{}</p>\n", escaped(text));
    }

    pub fn note(&mut self, text: &str) {
        self.0 += &format!("<p class=\"note\">{}</p>\n", escaped(text));
    }

    pub fn heading(&mut self, text: &str) {
        self.0 += &format!("<h2>{}</h2>\n", escaped(text));
    }

    /// A picture, which is made of escaped text.
    pub fn picture(&mut self, svg: &str) {
        self.0 += svg;
        self.0.push('\n');
    }

    /// A table; columns whose first cell begins with a digit are of numbers.
    pub fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        let number = |c: usize| {
            let first = rows.first().and_then(|r| r.get(c));
            first.is_some_and(|s| s.starts_with(|c: char| c.is_ascii_digit()))
        };
        let class = |c: usize| if number(c) { " class=\"n\"" } else { "" };
        self.0 += "<table><tr>";
        for (c, name) in header.iter().enumerate() {
            let _ = write!(self.0, "<th{}>{}</th>", class(c), escaped(name));
        }
        self.0 += "</tr>\n";
        for row in rows {
            self.0 += "<tr>";
            for (c, cell) in row.iter().enumerate() {
                let _ = write!(self.0, "<td{}>{}</td>", class(c), escaped(cell));
            }
            self.0 += "</tr>\n";
        }
        self.0 += "</table>\n";
    }

    pub fn done(self) -> String {
        self.0 + "</body></html>\n"
    }
}

/// Width of every picture, and height of those with axes.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 300.0;
/// Room for what stands beside the axes.
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 44.0;
const TOP: f64 = 14.0;
const RIGHT: f64 = 16.0;

/// From values to places of a picture.
#[derive(Clone, Copy)]
struct Axis {
    least: f64,
    most: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Axis {
    fn at(&self, v: f64) -> f64 {
        let scaled = |v: f64| if self.log { v.ln() } else { v };
        let (least, most) = (scaled(self.least), scaled(self.most));
        let share = (scaled(v) - least) / (most - least).max(1e-12);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round values between the ends.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let (from, to) = (
                self.least.log10().floor() as i32,
                self.most.log10().ceil() as i32,
            );
            let all = (from..=to).map(|e| 10f64.powi(e));
            let inside = |v: &f64| *v >= self.least * 0.999 && *v <= self.most * 1.001;
            return all.filter(inside).collect();
        }
        let rough = (self.most - self.least) / 5.0;
        let unit = 10f64.powf(rough.max(1e-12).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|s| s * unit);
        let step = steps.into_iter().find(|s| *s >= rough).unwrap_or(rough);
        let first = (self.least / step).ceil() as i64;
        let last = (self.most / step).floor() as i64;
        (first..=last).map(|i| i as f64 * step).collect()
    }
}

fn label(v: f64) -> String {
    let text = format!("{v:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_string()
}

fn axes(x: &Axis, y: &Axis, names: [&str; 2]) -> String {
    let mut svg = String::new();
    for v in x.ticks() {
        let at = x.at(v);
        let _ = write!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#eef1f5\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            y.to,
            y.from,
            y.from + 16.0,
            label(v)
        );
    }
    for v in y.ticks() {
        let at = y.at(v);
        let _ = write!(
            svg,
            "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#eef1f5\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            x.from,
            x.to,
            x.from - 6.0,
            at + 4.0,
            label(v)
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
         <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        x.to,
        y.from + 34.0,
        escaped(names[0]),
        x.from + 4.0,
        y.to + 4.0,
        escaped(names[1])
    );
    svg
}

fn svg(height: f64, inside: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">{inside}</svg>"
    )
}

/// A line that changes in steps: its colour, and its points by ascending `x`.
pub struct Steps {
    pub colour: &'static str,
    pub at: Vec<(f64, f64)>,
}

/// A point with what a browser shows of it.
pub struct Mark {
    pub at: (f64, f64),
    pub title: String,
}

/// Lines that change in steps, and marks beside them.
pub fn steps(lines: &[Steps], marks: &[Mark], names: [&str; 2]) -> String {
    let drawn = || lines.iter().flat_map(|l| &l.at);
    let all = || drawn().chain(marks.iter().map(|m| &m.at));
    if drawn().next().is_none() {
        return String::new();
    }
    let ends = |of: fn(&(f64, f64)) -> f64| {
        let values = || all().map(of);
        let least = values().fold(f64::INFINITY, f64::min);
        (least, values().fold(0.0, f64::max))
    };
    let ((first, last), (least, most)) = (ends(|p| p.0), ends(|p| p.1));
    let room = ((most - least) * 0.08).max(most * 0.01);
    let x = Axis {
        least: first,
        most: last.max(first + 1e-9),
        log: false,
        from: LEFT,
        to: WIDTH - RIGHT,
    };
    let y = Axis {
        least: least - room,
        most: most + room,
        log: false,
        from: HEIGHT - BOTTOM,
        to: TOP,
    };
    let mut inside = axes(&x, &y, names);
    for line in lines {
        let Some((first, rest)) = line.at.split_first() else {
            continue;
        };
        let mut path = format!("M{:.1} {:.1}", x.at(first.0), y.at(first.1));
        for p in rest {
            let _ = write!(path, "H{:.1}V{:.1}", x.at(p.0), y.at(p.1));
        }
        let colour = line.colour;
        let _ = write!(
            inside,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        );
    }
    for mark in marks {
        let _ = write!(
            inside,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"#d29922\"><title>{}</title></circle>",
            x.at(mark.at.0),
            y.at(mark.at.1),
            escaped(&mark.title)
        );
    }
    svg(HEIGHT, &inside)
}

/// Points of one kind, with the colour they are drawn in.
pub struct Points {
    pub colour: &'static str,
    pub at: Vec<(f64, f64)>,
}

/// Points of several kinds and a line, on a logarithmic scale of `y`.
pub fn scatter(kinds: &[Points], line: &[(f64, f64)], names: [&str; 2]) -> String {
    let all = || kinds.iter().flat_map(|k| &k.at).chain(line);
    let ends = |of: fn(&(f64, f64)) -> f64| {
        let values = || all().map(of);
        (
            values().fold(f64::INFINITY, f64::min),
            values().fold(0.0, f64::max),
        )
    };
    let ((first, last), (least, most)) = (ends(|p| p.0), ends(|p| p.1));
    if least.is_infinite() {
        return String::new();
    }
    let x = Axis {
        least: first,
        most: last.max(first + 1.0),
        log: false,
        from: LEFT,
        to: WIDTH - RIGHT,
    };
    let y = Axis {
        least: (least * 0.9).max(f64::MIN_POSITIVE),
        most: most * 1.1,
        log: true,
        from: HEIGHT - BOTTOM,
        to: TOP,
    };
    let mut inside = axes(&x, &y, names);
    for kind in kinds {
        for (at, value) in &kind.at {
            let _ = write!(
                inside,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{}\"><title>{at}: {}</title></circle>",
                x.at(*at),
                y.at(*value),
                kind.colour,
                label(*value)
            );
        }
    }
    let places = line
        .iter()
        .map(|p| format!("{:.1},{:.1}", x.at(p.0), y.at(p.1)));
    let places: Vec<String> = places.collect();
    let _ = write!(
        inside,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#1d2430\" stroke-width=\"1.5\"/>",
        places.join(" ")
    );
    svg(HEIGHT, &inside)
}

/// A bar of a picture: what it is of, how long it is, and what is written behind it.
pub struct Bar {
    pub name: String,
    pub length: f64,
    pub text: String,
    pub good: bool,
}

/// Bars below each other.
pub fn bars(bars: &[Bar]) -> String {
    const EACH: f64 = 24.0;
    const NAMES: f64 = 270.0;
    const TEXTS: f64 = 320.0;
    let longest = bars.iter().map(|b| b.length).fold(1e-12, f64::max);
    let mut inside = String::new();
    for (i, b) in bars.iter().enumerate() {
        let y = i as f64 * EACH;
        let length = (b.length / longest).max(0.0) * (WIDTH - NAMES - TEXTS);
        let colour = if b.good { "#2da44e" } else { "#a8b3c2" };
        let _ = write!(
            inside,
            "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{NAMES}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            NAMES - 8.0,
            y + 16.0,
            escaped(&super::screen::cut(&b.name, 38)),
            y + 4.0,
            EACH - 8.0,
            NAMES + length + 8.0,
            y + 16.0,
            escaped(&b.text)
        );
    }
    svg((bars.len() as f64 * EACH).max(EACH), &inside)
}

/// A point of a roofline: operations a byte, rate in GFLOP/s, and how large it is drawn, as a
/// share.
pub struct Dot {
    pub name: String,
    pub intensity: f64,
    pub gflops_per_s: f64,
    pub share: f64,
}

/// Rates against operations a byte, under the roof of the machine.
pub fn roofline(dots: &[Dot], peak_gflops: f64, gb_per_s: f64) -> String {
    let drawn: Vec<&Dot> = dots
        .iter()
        .filter(|d| d.intensity > 0.0 && d.gflops_per_s > 0.0)
        .collect();
    if drawn.is_empty() || peak_gflops <= 0.0 || gb_per_s <= 0.0 {
        return String::new();
    }
    let ends = |of: fn(&Dot) -> f64| {
        let least = drawn.iter().map(|d| of(d)).fold(f64::INFINITY, f64::min);
        (least, drawn.iter().map(|d| of(d)).fold(0.0, f64::max))
    };
    let ridge = peak_gflops / gb_per_s;
    let (least, most) = ends(|d| d.intensity);
    let x = Axis {
        least: least.min(ridge) / 2.0,
        most: most.max(ridge) * 2.0,
        log: true,
        from: LEFT,
        to: WIDTH - RIGHT,
    };
    let (least, most) = ends(|d| d.gflops_per_s);
    let y = Axis {
        least: least.min(peak_gflops) / 2.0,
        most: most.max(peak_gflops) * 2.0,
        log: true,
        from: HEIGHT + 60.0 - BOTTOM,
        to: TOP,
    };
    let roof = |i: f64| peak_gflops.min(i * gb_per_s);
    let start = x.least.max(y.least / gb_per_s);
    let mut inside = axes(&x, &y, ["operations a byte", "GFLOP/s"]);
    let _ = write!(
        inside,
        "<path d=\"M{:.1} {:.1}L{:.1} {:.1}H{:.1}\" fill=\"none\" stroke=\"#d1242f\" stroke-width=\"1.5\"/>",
        x.at(start),
        y.at(roof(start)),
        x.at(ridge),
        y.at(peak_gflops),
        x.to
    );
    for d in drawn {
        let _ = write!(
            inside,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{:.1}\" fill=\"#1f6feb\" fill-opacity=\".55\"><title>{}: {:.1} GFLOP/s, {:.1} operations a byte, {:.1}% of the time</title></circle>",
            x.at(d.intensity),
            y.at(d.gflops_per_s),
            3.0 + 18.0 * d.share.max(0.0).sqrt(),
            escaped(&d.name),
            d.gflops_per_s,
            d.intensity,
            100.0 * d.share
        );
    }
    svg(HEIGHT + 60.0, &inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_whole_and_its_text_is_text() {
        let mut page = Page::new("a <b> & c");
        page.lead("x < y");
        page.table(&["n", "what"], &[vec!["12".into(), "\"<i>\"".into()]]);
        let html = page.done();
        assert!(html.starts_with(START) && html.ends_with("</html>\n"));
        assert!(html.contains("<h1>a &lt;b&gt; &amp; c</h1>") && html.contains("&quot;&lt;i&gt;"));
        assert!(
            !html.contains("http") && !html.contains("<script"),
            "it needs nothing else"
        );
    }

    #[test]
    fn pictures_stay_in_their_frames() {
        let one = Steps {
            colour: "#1f6feb",
            at: vec![(1.0, 10.0), (2.0, 8.0), (9.0, 8.0)],
        };
        let mark = Mark {
            at: (10.0, 12.0),
            title: "epoch < 1".into(),
        };
        let line = steps(&[one], &[mark], ["s", "ms"]);
        assert!(line.contains("H") && line.contains("M64.0"), "{line}");
        // Marks belong to the scale, too.
        assert!(
            line.contains("cx=\"884.0\"") && line.contains("epoch &lt; 1"),
            "{line}"
        );
        assert!(!line.contains("H884.0"), "{line}");
        assert_eq!(steps(&[], &[], ["s", "ms"]), "");
        let dot = |intensity, gflops_per_s| Dot {
            name: "dense".into(),
            intensity,
            gflops_per_s,
            share: 0.5,
        };
        let picture = roofline(&[dot(1.0, 10.0), dot(0.0, 5.0)], 100.0, 20.0);
        assert_eq!(
            picture.matches("<circle").count(),
            1,
            "what has no operations has no place"
        );
        assert_eq!(roofline(&[dot(0.0, 0.0)], 100.0, 20.0), "");
        assert!(!picture.contains("NaN") && !line.contains("NaN"));
    }

    #[test]
    fn ticks_are_round_and_inside() {
        let axis = |least, most, log| Axis {
            least,
            most,
            log,
            from: 0.0,
            to: 1.0,
        };
        assert_eq!(
            axis(0.0, 10.0, false).ticks(),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        );
        assert_eq!(axis(0.5, 200.0, true).ticks(), [1.0, 10.0, 100.0]);
    }
}
