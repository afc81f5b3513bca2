//! Words, numbers and symbols of the text form, with their places.

use tensor::DType;

/// Text that is not a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: expected {expected}, found {found}")]
pub struct ParseError {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub expected: String,
    pub found: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lexeme {
    /// A bare name or a keyword.
    Word(String),
    Quoted(String),
    /// Digits, a fraction and exponent if `true`, and the suffix.
    Number(String, bool, Option<DType>),
    /// `0x…`.
    Bits(u64),
    /// `$0`, `$1_f32`.
    Arg(u32, Option<DType>),
    Symbol(&'static str),
    End,
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub lexeme: Lexeme,
    pub line: usize,
    pub column: usize,
}

impl Token {
    pub fn expected(&self, what: impl Into<String>) -> ParseError {
        let found = match &self.lexeme {
            Lexeme::Word(w) => format!("`{w}`"),
            Lexeme::Quoted(w) => format!("the name {w:?}"),
            Lexeme::Number(n, ..) => format!("the number {n}"),
            Lexeme::Bits(b) => format!("the number {b:#x}"),
            Lexeme::Arg(i, _) => format!("`${i}`"),
            Lexeme::Symbol(s) => format!("`{s}`"),
            Lexeme::End => "the end of the text".into(),
        };
        ParseError {
            line: self.line,
            column: self.column,
            expected: what.into(),
            found,
        }
    }
}

/// Longer symbols before their prefixes.
const SYMBOLS: [&str; 20] = [
    "..", "//", "==", "!=", "<=", "{", "}", "[", "]", "(", ")", ",", ":", "=", "<", "+", "-", "*",
    "/", "%",
];

/// Splits text into tokens, the last one `End`.
pub(super) fn lex(text: &str) -> Result<Vec<Token>, ParseError> {
    let mut lexer = Lexer {
        chars: text.chars().collect(),
        at: 0,
        line: 1,
        column: 1,
    };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.token()?;
        let last = token.lexeme == Lexeme::End;
        tokens.push(token);
        if last {
            return Ok(tokens);
        }
    }
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    column: usize,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        if c == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(c)
    }

    /// Takes characters as long as `f` holds.
    fn take(&mut self, f: impl Fn(char) -> bool) -> String {
        let mut out = String::new();
        while let Some(c) = self.peek(0).filter(|c| f(*c)) {
            out.push(c);
            self.next();
        }
        out
    }

    fn error(&self, expected: &str) -> ParseError {
        let found = match self.peek(0) {
            Some(c) => format!("{c:?}"),
            None => "the end of the text".into(),
        };
        ParseError {
            line: self.line,
            column: self.column,
            expected: expected.into(),
            found,
        }
    }

    fn skip_blanks(&mut self) {
        loop {
            self.take(char::is_whitespace);
            if self.peek(0) != Some(';') {
                return;
            }
            self.take(|c| c != '\n');
        }
    }

    fn token(&mut self) -> Result<Token, ParseError> {
        self.skip_blanks();
        let (line, column) = (self.line, self.column);
        let lexeme = match self.peek(0) {
            None => Lexeme::End,
            Some(c) if super::is_name_start(c) => Lexeme::Word(self.take(super::is_name_char)),
            Some('0') if self.peek(1) == Some('x') => self.bits()?,
            Some(c) if c.is_ascii_digit() => self.number()?,
            Some('"') => self.quoted()?,
            Some('$') => self.arg()?,
            Some(_) => self.symbol()?,
        };
        Ok(Token {
            lexeme,
            line,
            column,
        })
    }

    fn symbol(&mut self) -> Result<Lexeme, ParseError> {
        let matches = |s: &&&str| s.chars().enumerate().all(|(i, c)| self.peek(i) == Some(c));
        let Some(symbol) = SYMBOLS.iter().find(matches) else {
            return Err(self.error("a name, a number or an operator"));
        };
        symbol.chars().for_each(|_| {
            self.next();
        });
        Ok(Lexeme::Symbol(symbol))
    }

    fn bits(&mut self) -> Result<Lexeme, ParseError> {
        self.next();
        self.next();
        let digits = self.take(|c| c.is_ascii_hexdigit());
        let bits = u64::from_str_radix(&digits, 16);
        bits.map(Lexeme::Bits)
            .map_err(|_| self.error("1 to 16 hexadecimal digits"))
    }

    fn number(&mut self) -> Result<Lexeme, ParseError> {
        let digit = |c: char| c.is_ascii_digit();
        let is_digit = |c: Option<char>| c.is_some_and(digit);
        let mut text = self.take(digit);
        let mut fractional = false;
        if self.peek(0) == Some('.') && is_digit(self.peek(1)) {
            fractional = true;
            self.next();
            text.push('.');
            text += &self.take(digit);
        }
        if self.peek(0) == Some('e') {
            let sign = self.peek(1).filter(|c| matches!(c, '+' | '-'));
            if is_digit(self.peek(1 + sign.iter().count())) {
                fractional = true;
                self.next();
                text.push('e');
                if let Some(sign) = sign {
                    text.push(sign);
                    self.next();
                }
                text += &self.take(digit);
            }
        }
        let suffix = self.suffix()?;
        if self.peek(0).is_some_and(super::is_name_start) {
            return Err(self.error("the end of the number"));
        }
        Ok(Lexeme::Number(text, fractional, suffix))
    }

    fn suffix(&mut self) -> Result<Option<DType>, ParseError> {
        if self.peek(0) != Some('_') {
            return Ok(None);
        }
        let place = (self.line, self.column);
        self.next();
        let word = self.take(|c| c.is_ascii_alphanumeric());
        word.parse().map(Some).map_err(|_| ParseError {
            line: place.0,
            column: place.1,
            expected: "an element type after `_`".into(),
            found: format!("`{word}`"),
        })
    }

    fn quoted(&mut self) -> Result<Lexeme, ParseError> {
        self.next();
        let mut out = String::new();
        loop {
            match self.peek(0) {
                Some('"') => {
                    self.next();
                    return Ok(Lexeme::Quoted(out));
                }
                Some('\\') => {
                    self.next();
                    out.push(match self.peek(0) {
                        Some('n') => '\n',
                        Some('r') => '\r',
                        Some(c @ ('"' | '\\')) => c,
                        _ => return Err(self.error("one of `\"`, `\\`, `n`, `r` after `\\`")),
                    });
                    self.next();
                }
                None | Some('\n') => return Err(self.error("`\"` at the end of the name")),
                Some(c) => {
                    out.push(c);
                    self.next();
                }
            }
        }
    }

    fn arg(&mut self) -> Result<Lexeme, ParseError> {
        self.next();
        let digits = self.take(|c| c.is_ascii_digit());
        let Ok(i) = digits.parse() else {
            return Err(self.error("the number of an argument after `$`"));
        };
        Ok(Lexeme::Arg(i, self.suffix()?))
    }
}
