/**
 * JSON of an object with the checksum of its text as the last member. So a changed bit of a number is
 * found, which JSON alone would take for another number.
 */
import { crc32 } from 'node:zlib';

const seal = /,"checksum":"([^"]*)"\}\s*$/;

/** A checksum as text whose length does not depend on it. */
export const checksumText = (checksum: number): string => checksum.toString(16).padStart(8, '0');

/** The JSON of an object, which has members, with its checksum. */
export function sealedJson(value: object): string {
  const open = JSON.stringify(value).slice(0, -1);
  return `${open},"checksum":"${checksumText(crc32(open))}"}`;
}

/** Whether a text is the one that was sealed; also true without a checksum, as of earlier versions. */
export function isIntact(text: string): boolean {
  const found = seal.exec(text);
  return found === null || found[1] === checksumText(crc32(text.slice(0, found.index)));
}
