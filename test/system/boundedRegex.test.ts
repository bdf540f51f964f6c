import { describe, expect, it } from 'vitest';
import { regexCost, regexProblem } from '../../system/boundedRegex.js';

/** Patterns by which tokenizers of published families split text. */
const PUBLISHED = {
  'GPT-2': String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
  'LLaMA 3':
    String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|` +
    String.raw` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  'Qwen 2':
    String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|` +
    String.raw` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  'GPT-4o':
    String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` +
    String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
    String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` +
    String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
    String.raw`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  'DeepSeek V3':
    String.raw`[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_` +
    '`' +
    String.raw`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  'GPT-4 with possessive repetitions':
    String.raw`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|` +
    String.raw` ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`,
  BLOOM: ' ?[^(\\s|[.,!?…。，、।۔،])]+',
  'groups of digits': String.raw`\d{1,3}(?=(?:\d{3})*\b)`,
};

describe('regexProblem', () => {
  it.each(Object.entries(PUBLISHED))('accepts the pattern of %s', (_, pattern) => {
    expect(regexProblem(pattern)).toBeUndefined();
  });

  it.each([
    ['(a+)+b', 'a group of varying length is repeated'],
    ['(a|a)*b', 'a group of varying length is repeated'],
    ['(?:a?){30}a', 'a group of varying length is repeated'],
    ['a*a*b', 'several repetitions follow one another'],
    ['a*(?:a*b)?', 'several repetitions follow one another'],
    ['(?:a*|b)a*b', 'several repetitions follow one another'],
    ['a*a*(?!b?)', 'several repetitions follow one another'],
    ['a*(?i)x|a*(?i)y|a*z', 'several repetitions follow one another'],
    ['a?'.repeat(40) + 'b', 'its choices multiply'],
    ['a{0,64}'.repeat(3) + 'b', 'its choices multiply'],
    ['(?:a|aa)'.repeat(20) + 'b', 'its choices multiply'],
    ['(?=(?:a|aa)(?:b|))'.repeat(6) + 'c', 'its choices multiply'],
    ['(?:(?:a{64}){64}){64}', 'its choices multiply'],
    ['(?:a{2}+)*b', 'a group of varying length is repeated'],
    ['a{1,3}+b', 'several repetitions follow one another'],
    ['[[:none:](a+)+b]', 'names no kind of characters'],
    ['(?x:a # comment )', 'is not supported'],
    [String.raw`(a)\1`, 'is not supported'],
    ['(?<name>a)', 'is not supported'],
    [String.raw`\g<0>`, 'is not supported'],
    ['a**', 'a repetition is repeated'],
    ['a{1000}', 'it repeats 1000 times'],
    ['(a', 'its parentheses do not match'],
    ['a)', 'its parentheses do not match'],
    ['[a', 'a class of characters does not end'],
    ['('.repeat(100), 'nest more than 16 deep'],
    ['a'.repeat(5000), 'it has 5000 characters'],
  ])('refuses %s', (pattern, expected) => {
    expect(regexProblem(pattern)).toContain(expected);
  });

  it('reads a bracket within a class as Python does where asked to', () => {
    expect(regexCost('[[](a+)+b]]', 'nested').problem).toBeUndefined();
    expect(regexCost('[[](a+)+b]]', 'flat').problem).toContain('a group of varying length is repeated');
  });

  it.each([
    ['abc', 4, false],
    ['a?b', 4, false],
    ['(a|bc)d', 8, false],
    ['[0-9.,]{2,}', 3, true],
  ])('counts the steps of %s', (pattern, steps, hasLoops) => {
    expect(regexCost(pattern, 'flat')).toMatchObject({ problem: undefined, steps, hasLoops });
  });
});

describe('regexCost', () => {
  it.each([
    ['', true],
    ['x*', true],
    ['a|', true],
    ['(?=a)', true],
    ['(?<!x)', true],
    ['\\b', true],
    ['^', true],
    ['(?:ab){2}?', true],
    ['x{,3}', true],
    ['x+', false],
    [' {2,}', false],
    ['(?:a|bc)', false],
    ['x?y', false],
    ['\\s+$', false],
    ['(?<=a)b', false],
  ])('says of %j whether it may match nothing: %s', (pattern, mayBeEmpty) => {
    expect(regexCost(pattern, 'nested')).toMatchObject({ problem: undefined, mayBeEmpty });
  });
});
