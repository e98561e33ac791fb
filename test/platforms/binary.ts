/** What the addon of a platform exports and needs, read from its file. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** The interface of an addon with its system. */
export interface Binary {
  /** Sorted. */
  exports: string[];
  /** Libraries. */
  needs: string[];
  /** The oldest system that can load it: of glibc or macOS; null if it asks for none. */
  oldest: string | null;
  /** Whether it has a code signature. */
  signed: boolean;
}

/** Reads an ELF, Mach-O or PE file, by its first bytes. */
export function readBinary(file: string): Binary {
  const magic = readFileSync(file).readUInt32LE(0);
  if (magic === 0x464c457f) return readElf(file);
  return magic === 0xfeedfacf ? readMachO(readFileSync(file)) : readPe(file);
}

const tool = (name: string, ...args: string[]): string =>
  execFileSync(name, args, { encoding: 'utf8', maxBuffer: 2 ** 28 });
const names = (text: string, pattern: RegExp): string[] =>
  [...text.matchAll(pattern)].map(([, name = '']) => name);

function readElf(file: string): Binary {
  const symbols = tool('readelf', '--dyn-syms', '--wide', file);
  const versions = names(tool('readelf', '-V', file), /GLIBC_(2\.\d+)/g);
  const minors = versions.map((version) => Number(version.slice(2)));
  return {
    exports: names(symbols, /(?:FUNC|OBJECT) +(?:GLOBAL|WEAK) +DEFAULT +\d+ (\w+)/g).sort(),
    needs: names(tool('readelf', '-d', file), /\(NEEDED\).*\[(.+)\]/g),
    oldest: minors.length > 0 ? `2.${Math.max(...minors)}` : null,
    signed: false,
  };
}

/** binutils know PE. */
function readPe(file: string): Binary {
  const text = tool('objdump', '-p', file);
  const [, exported = ''] = text.split('[Ordinal/Name Pointer] Table');
  return {
    exports: names(exported, /^\s*\[ *\d+\][^\n]*?(\w+)$/gm).sort(),
    needs: names(text, /DLL Name: (\S+)/g),
    oldest: null,
    signed: false,
  };
}

/** Load commands of https://github.com/apple-oss-distributions/xnu, `mach-o/loader.h`. */
const COMMANDS = { dylib: 0xc, dyldInfo: 0x80000022, signature: 0x1d, buildVersion: 0x32 };

function readMachO(bytes: Buffer): Binary {
  const found: Binary = { exports: [], needs: [], oldest: null, signed: false };
  let at = 32;
  for (let k = 0; k < bytes.readUInt32LE(16); k++) {
    const word = (index: number): number => bytes.readUInt32LE(at + 4 * index);
    const command = word(0);
    if (command === COMMANDS.dylib) found.needs.push(textAt(bytes, at + word(2)));
    if (command === COMMANDS.signature) found.signed = true;
    if (command === COMMANDS.buildVersion)
      found.oldest = `${word(3) >> 16}.${(word(3) >> 8) & 0xff}`;
    if (command === COMMANDS.dyldInfo) {
      const [start, size] = [word(10), word(11)];
      found.exports = namesInTrie(bytes.subarray(start, start + size)).sort();
    }
    at += word(1);
  }
  return found;
}

const textAt = (bytes: Buffer, at: number): string =>
  bytes.toString('latin1', at, bytes.indexOf(0, at));

/** The names of an export trie; `prefix` leads to the node at `at`. */
function namesInTrie(trie: Buffer, at = 0, prefix = ''): string[] {
  const [size, afterSize] = leb128(trie, at);
  const own = size > 0 ? [prefix.slice(1)] : []; // without the underscore of C
  let next = afterSize + size + 1;
  for (let k = trie[next - 1] ?? 0; k > 0; k--) {
    const edge = textAt(trie, next);
    const [child, after] = leb128(trie, next + edge.length + 1);
    own.push(...namesInTrie(trie, child, prefix + edge));
    next = after;
  }
  return own;
}

/** A number of variable length, and where the next begins. */
function leb128(bytes: Buffer, at: number): [value: number, next: number] {
  let value = 0;
  for (let shift = 0; ; shift += 7, at++) {
    const byte = bytes[at] ?? 0;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return [value, at + 1];
  }
}
