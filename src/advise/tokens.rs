//! The words of a text of SQL (pure).

/// A part of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// An identifier or key word; folded to lower case unless it was quoted.
    Word {
        text: String,
        quoted: bool,
    },
    Symbol(char),
    /// The content of a string.
    Text(String),
    Number,
    /// What stands in a constant's place: `$1`.
    Parameter,
}

impl Token {
    pub(super) fn is_keyword(&self, keyword: &str) -> bool {
        matches!(self, Token::Word { text, quoted: false } if text == keyword)
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self, Token::Word { text, .. } if text == name)
    }

    pub(super) fn is_one_of(&self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.is_keyword(keyword))
    }
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// The parts of a text; comments are none.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => {}
            '-' if chars.peek() == Some(&'-') => while chars.next().is_some_and(|c| c != '\n') {},
            '/' if chars.peek() == Some(&'*') => skip_comment(&mut chars),
            '\'' => out.push(Token::Text(quoted(&mut chars, '\''))),
            '"' => out.push(Token::Word { text: quoted(&mut chars, '"'), quoted: true }),
            '$' => out.push(dollars(&mut chars)),
            c if c.is_ascii_digit() => {
                while chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '.').is_some() {}
                out.push(Token::Number);
            }
            c if c.is_alphabetic() || c == '_' => {
                let mut text = String::from(c);
                while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || "_$".contains(*c)) {
                    text.push(c);
                }
                out.push(Token::Word { text: text.to_lowercase(), quoted: false });
            }
            c => out.push(Token::Symbol(c)),
        }
    }
    out
}

/// Up to the closing quote; a doubled one stands for itself.
fn quoted(chars: &mut Chars<'_>, quote: char) -> String {
    let mut text = String::new();
    while let Some(c) = chars.next() {
        if c == quote && chars.next_if_eq(&quote).is_none() {
            break;
        }
        text.push(c);
    }
    text
}

/// To the end of a comment, which may hold others; its first character is read.
fn skip_comment(chars: &mut Chars<'_>) {
    let mut depth = 0;
    let mut last = '/';
    for c in chars.by_ref() {
        match (last, c) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                last = c;
                continue;
            }
        }
        if depth == 0 {
            return;
        }
        last = ' ';
    }
}

/// A parameter, or a string in dollar quotes.
fn dollars(chars: &mut Chars<'_>) -> Token {
    let mut tag = String::from("$");
    while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
        tag.push(c);
    }
    if chars.next_if_eq(&'$').is_none() {
        return Token::Parameter;
    }
    tag.push('$');
    let mut read = String::new();
    for c in chars.by_ref() {
        read.push(c);
        if read.ends_with(&tag) {
            read.truncate(read.len() - tag.len());
            break;
        }
    }
    Token::Text(read)
}
