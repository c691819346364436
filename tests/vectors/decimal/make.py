#!/usr/bin/env python3
"""Writes decimal.txt: decimal texts and the bits of the nearest double, a line each: TEXT BITS, 16 hexadecimal digits.

usage: make.py        (CPython; nothing else)

A text is written as it is but for runs: "\\*N;D" is N times the digit D.  The bits are float()'s, and are checked here
against the definition with exact fractions: nearest, ties to the even one.
"""
import os, random, re, struct
from fractions import Fraction

def f64(bits):
    return struct.unpack('<d', struct.pack('<Q', bits))[0]

def bits_of(value):
    return struct.unpack('<Q', struct.pack('<d', value))[0]

INFINITY = 0x7ff0000000000000

def exact(bits):
    """A finite double; the one behind the largest counts as 2^1024."""
    return Fraction(2) ** 1024 if bits == INFINITY else Fraction(f64(bits))

def is_nearest(text, bits):
    """Is the number of the text, without its sign, nearest to these bits, or as near and these are even?"""
    mantissa, _, exponent = text.lstrip('+-').lower().partition('e')
    if abs(int(exponent or 0)) > 5000:   # beyond any run of digits here
        digits = mantissa.replace('.', '').strip('0')
        return bits == (INFINITY if digits and int(exponent) > 0 else 0)
    whole, _, fraction = mantissa.partition('.')
    number = Fraction(int((whole + fraction) or '0')) * Fraction(10) ** (int(exponent or 0) - len(fraction))
    distance = abs(number - exact(bits))
    if bits == INFINITY and number >= exact(bits):
        return True
    for other in (bits - 1, bits + 1):
        if 0 <= other <= INFINITY:
            far = abs(number - exact(other))
            if far < distance or (far == distance and bits & 1):
                return False
    return True

def write_out(number):
    """A fraction with a denominator of 2s, in full."""
    shift = number.denominator.bit_length() - 1
    digits = str(number.numerator * 5 ** shift).rjust(shift + 1, '0')
    return digits[:len(digits) - shift] + ('.' + digits[len(digits) - shift:] if shift else '')

def neighbours(text):
    """The text, and those with one less and one more in the last of its digits, which may be a 0 added behind them."""
    n = len(text.partition('.')[2])
    if not n:
        text, n = text + '.0', 1
    value = int(text.replace('.', ''))
    for v in (value - 1, value, value + 1):
        digits = str(v).rjust(n + 1, '0')
        yield digits[:-n] + '.' + digits[-n:]

texts = '''0 -0 +0 0.0 .0 0. 1 -1 +1 1. .5 -.5 5.e1 .5E+1 00012.500 1e0 1e00 1e-0 10e-1 0.1 0.2 0.3 123456789012345
1e22 1e23 9007199254740991 9007199254740992 9007199254740993 9007199254740994 9007199254740995 9007199254740997
9007199254740993.0000000000000000000000000001 18446744073709551615 18446744073709551616 18446744073709553665
123456789012345e22 123456789012345e23 123456789012345e-22 123456789012345e-23 999999999999999e-22 1234567890123456e-3
8.5e22 3e22 3e23 1e-22 1e-23 3.141592653589793 2.718281828459045 6.02214076e23 6.62607015e-34 1.6777217e7 3.4028235e38
1.7976931348623157e308 1.7976931348623158e308 1.7976931348623159e308 17976931348623158e292 1e308 1e309 159e308 1e310
-1e309 1.8e308 179769313486231580793e289 0.00017976931348623157e312 1e400 1e99999999999 -1e99999999999 1e2147483648
1e9223372036854775807 1e9223372036854775808 1e18446744073709551616 1e100000000000000000000000000000000
2.2250738585072011e-308 2.2250738585072012e-308 2.2250738585072014e-308 2.225073858507201e-308 2.2250738585072e-308
4.9406564584124654e-324 5e-324 4e-324 3e-324 2.5e-324 2.4703282292062328e-324 2.4703282292062327e-324 2e-324 1e-324
9e-325 1e-323 1.5e-323 7.4109846876186982e-324 1e-99999999999 -1e-99999999999 1e-2147483649 1e-9223372036854775808
1e-18446744073709551616 0e999999999999 0e-999999999999 -0e999999999999 0.000e5 0.0000000000000000001e19 1e-400
5708990770823839524233143877797980545530986496e0 3.518437208883201171875e13 62.5364939768271845828 8.10109172351e-10
1.50000000000000011102230246251565 9214843084008499 6.8985865317742005e-310 89255e-22
104110013277974872254e-225'''.split()

def half(bits):
    """What lies in the middle between a double and the next."""
    return (exact(bits) + exact(bits + 1)) / 2

rng = random.Random(1)
# The middle between two doubles in full, and a little less and more: 1 + 2^-53 and 1 + 3 * 2^-53, others about 1, of
# powers of 10, at the ends of the range and of subnormals, and any.
one = bits_of(1.0)
for b in [one, one + 1, one - 1, bits_of(0.1), bits_of(1e22), bits_of(1e23), bits_of(2.0**53), bits_of(2.0**64), 0, 1,
          2, 0x000fffffffffffff, 0x0010000000000000, 0x0010000000000001, INFINITY - 1,
          INFINITY - 2] + [rng.randrange(bits_of(1e-40), bits_of(1e40)) for _ in range(20)]:
    texts += neighbours(write_out(half(b)))
# The last digit far behind: the 768 digits of the longest middle, then 0s, then a 1 or none; 800 and more of any.
longest = write_out(half(0x001fffffffffffff))
assert len(longest.lstrip('0.')) == 768
texts += [longest + '0' * n + d for n in (31, 32, 33, 34, 100, 1000) for d in ('', '1')]
texts += ['0.' + '0' * 320 + '1' * n for n in (799, 800, 801, 2000)]
texts += ['9' * n + e for n in (308, 309, 310, 799, 800, 801, 1500) for e in ('', 'e-%d' % (n - 5), 'e-%d' % (n + 322))]
texts += ['1' + '0' * n + e for n in (308, 309, 2000) for e in ('', 'e-%d' % n, 'e-%d' % (n + 310), '1', '1e-%d' % n)]
texts += ['0' * 1000 + '1.5', '0' * 1000 + '.' + '0' * 1000 + '15e1001', '1' + '0' * 900 + '.' + '0' * 900 + '1e-900',
          '0.' + '0' * 2000 + '25e2001',
          '9007199254740993.' + '0' * 790 + '1', '9007199254740993.' + '0' * 900]
# Shortest and longer forms of any double, subnormals too.
for i in range(120):
    value = f64(rng.randrange(INFINITY) if i % 3 else rng.randrange(1 << rng.randrange(1, 53)))
    texts.append((repr(value), '%.17g' % value, '%.*e' % (rng.randrange(16, 40), value))[i % 4 % 3])

here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, 'decimal.txt'), 'w', newline='\n') as out:
    for text in dict.fromkeys(texts):
        value = float(text)
        assert is_nearest(text, bits_of(abs(value))), text
        short = re.sub(r'([0-9])\1{15,}', lambda m: '\\*%d;%s' % (len(m[0]), m[1]), text)
        out.write('%s %016x\n' % (short, bits_of(value)))
