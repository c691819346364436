/* The time as text, for chat templates: strftime of C in the C locale. */
#include "template/builtins.h"

#include <stdio.h>

struct date { int64_t year; int month, day, weekday, hour, minute, second, day_of_year; };

/* The date in the proleptic Gregorian calendar (H. Hinnant, "chrono-compatible low-level date algorithms"). */
static struct date date_of(int64_t seconds) {
    int64_t days = seconds / 86400, rest = seconds % 86400;
    if (rest < 0) days--, rest += 86400;
    int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097, day_of_era = z - era * 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100), month = (5 * day + 2) / 153;
    struct date d = {.month = (int)(month < 10 ? month + 2 : month - 10), .day = (int)(day - (153 * month + 2) / 5 + 1),
                     .hour = (int)(rest / 3600), .minute = (int)(rest / 60 % 60), .second = (int)(rest % 60)};
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    d.year = year_of_era + era * 400 + (d.month < 2);
    d.weekday = (int)(((days + 4) % 7 + 7) % 7);
    bool is_leap = (d.year % 4 == 0 && d.year % 100 != 0) || d.year % 400 == 0;
    d.day_of_year = before[d.month] + d.day + (is_leap && d.month > 1);
    return d;
}

static const char *const months[] = {"January", "February", "March", "April", "May", "June", "July", "August",
                                     "September", "October", "November", "December"};
static const char *const weekdays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

/* Writes what a letter stands for.  Returns false for a letter that is not known. */
static bool write_field(struct render *r, struct output *out, const struct date *d, char letter, bool is_padded) {
    char text[32];
    int64_t n = 0;
    const char *form = is_padded ? "%02lld" : "%lld", *word = NULL;
    switch (letter) {
    case 'Y': n = d->year; form = "%lld"; break;
    case 'y': n = (d->year % 100 + 100) % 100; break;
    case 'm': n = d->month + 1; break;
    case 'd': n = d->day; break;
    case 'e': n = d->day; form = is_padded ? "%2lld" : "%lld"; break;
    case 'H': n = d->hour; break;
    case 'I': n = (d->hour + 11) % 12 + 1; break;
    case 'M': n = d->minute; break;
    case 'S': n = d->second; break;
    case 'j': n = d->day_of_year; form = is_padded ? "%03lld" : "%lld"; break;
    case 'B': case 'b': case 'h': word = months[d->month]; break;
    case 'A': case 'a': word = weekdays[d->weekday]; break;
    case 'p': word = d->hour < 12 ? "AM" : "PM"; break;
    case '%': word = "%"; break;
    default: return false;
    }
    if (!word) snprintf(text, sizeof text, form, (long long)n);
    output_put(r, out, word ? word : text, word && strchr("bha", letter) ? 3 : strlen(word ? word : text));
    return true;
}

void output_time(struct render *r, struct output *out, int64_t now, struct text format) {
    const struct date d = date_of(now);
    for (size_t i = 0; i < format.n && r->stop == STOP_NOT; i++) {
        if (format.data[i] != '%') {
            output_add(r, out, text_part(format, i, 1));
            continue;
        }
        bool is_padded = i + 1 >= format.n || format.data[i + 1] != '-';
        if (!is_padded) i++;
        char letter = ++i < format.n ? format.data[i] : 0;
        if (letter == 'F') output_time(r, out, now, text_of("%Y-%m-%d"));
        else if (letter == 'D') output_time(r, out, now, text_of("%m/%d/%y"));
        else if (letter == 'T') output_time(r, out, now, text_of("%H:%M:%S"));
        else if (letter == 'R') output_time(r, out, now, text_of("%H:%M"));
        else if (letter == 'c') output_time(r, out, now, text_of("%a %b %e %H:%M:%S %Y"));
        else if (!write_field(r, out, &d, letter, is_padded)) {
            bool is_plain = letter > ' ' && letter < 127;
            render_fail(r, "strftime_now: the format has %%%c, which is not supported", is_plain ? letter : '?');
        }
    }
}
