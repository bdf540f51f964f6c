/** The language of a text, where the public harness asks langdetect. */

// Short words that are frequent in a language and rare in its neighbours, by ISO 639-1 codes. They tell languages of
// one script apart, with letters that only some of them use.

interface Language {
  readonly words: string;
  /** Letters that are usual here and seldom elsewhere within the script. */
  readonly letters?: string;
}

export type Script = 'Latin' | 'Cyrillic' | 'Arabic' | 'Devanagari';

export const LANGUAGES: Readonly<Record<Script, Readonly<Record<string, Language>>>> = {
  Latin: {
    en: {
      words:
        'the and of to is in that it for was with you this are be have not by from or which but they his her ' +
        'their will would can has been were what there when who more if out up my your our all about should ' +
        'could these i am no yes on at as so we how do does did than then into its some any may also like ' +
        'just',
    },
    de: {
      words:
        'der die und das ist nicht ein eine zu den mit von für auf sich des dem auch es an werden aus er hat ' +
        'dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder aber vor ' +
        'zur bis mehr durch man ich wir ihr kann wenn sein unter weil diese dieser sehr schon als im uns ihre',
      letters: 'ßäöü',
    },
    fr: {
      words:
        'le la les des est et un une dans que qui pour pas sur au avec ce sont par plus ne il elle nous vous ' +
        'mais ou cette son ses aux être fait comme leur sa tout même ces été avoir deux si aussi je du en on ' +
        'très bien où peut sans lui leurs votre notre',
      letters: 'èêçœùàâîô',
    },
    es: {
      words:
        'el la de que y los del las un por con una para es su al lo como más pero sus le ha este sí porque ' +
        'esta entre cuando muy sin sobre también me hasta hay donde quien desde todo nos durante todos uno ' +
        'les ni contra otros ese eso ante ellos esto mí antes algunos son en no se fue ser está tiene puede ' +
        'cada',
      letters: 'ñ¿¡',
    },
    pt: {
      words:
        'o a os as de que do da em um uma para com não por mais dos das no na se ao ele ela como mas foi seu ' +
        'sua ou ser quando muito há nos já está eu também só pelo pela até isso entre era depois sem mesmo ' +
        'aos ter seus quem nas me esse eles são você tem à às meu minha nossa pode cada é e',
      letters: 'ãõ',
    },
    it: {
      words:
        'il di che la è e un una per non sono del della in con si da come anche le dei nel alla più ma gli lo ' +
        'ha al delle nella questo questa se su dal ai degli suo sua essere o loro molto stato perché quando ' +
        'tutti ci io mi tra fra ogni dalla sul sulla nei può dove chi i',
      letters: 'ìò',
    },
    nl: {
      words:
        'de het een van en is dat niet te zijn op met voor die er aan hij om ook als maar bij dan nog naar ' +
        'uit wordt door over ze heeft worden kan geen deze of was veel meer hebben zich dit tot je wij jouw ' +
        'onze haar zou wel werd in ik zo',
    },
    sv: {
      words:
        'och att det som en är på av för med till den har de inte om ett han men var sig från vi så kan när ' +
        'år under också efter eller nu sin där vid mot ska skulle kommer ut får finns vara hade alla andra ' +
        'mycket än här då jag du',
      letters: 'åäö',
    },
    da: {
      words:
        'og at det er en til af på for den som med ikke de der har et var han fra vi så kan om også efter ' +
        'eller nu sin ved mod skal ville kommer blev hvor meget når være jeg hun mig bliver noget nogle andre ' +
        'havde men',
      letters: 'æøå',
    },
    no: {
      words:
        'og at det er en til av på for den som med ikke de har et var han fra vi så kan om også etter eller ' +
        'nå sin ved mot skal ville kommer ble hvor mye når være jeg hun meg blir noe noen andre hadde men ' +
        'bare',
      letters: 'æøå',
    },
    fi: {
      words:
        'ja on ei se että hän oli ovat mutta kun myös kuin joka tai olla jos niin mitä vain sen ole voi hänen ' +
        'tämä ne jotka minä sinä me te he tämän nyt sitten koska kanssa mukaan kaikki ollut hyvin siitä ennen ' +
        'vielä jo mikä joten sekä eivät olen olet voit',
      letters: 'äö',
    },
    et: {
      words:
        'ja on ei see et ta oli aga kui ka mis või olla nii ma sa me te nad selle seda siis ning oma kes üks ' +
        'väga nagu mida tema kõik veel juba pole kuid sest',
      letters: 'õäöü',
    },
    hu: {
      words:
        'a az és hogy nem is egy ez de van meg azt csak volt ki mint el már még kell vagy lehet ha mi nagyon ' +
        'én ő amely minden után sem így lesz ezt itt ott azonban között szerint',
      letters: 'őű',
    },
    pl: {
      words:
        'i w na nie się to z do że jest o jak ale po co tak za od czy przez jego być dla ich są oraz ja tym ' +
        'może jej tego już tylko był która który które bardzo jako kiedy jeszcze mnie mi przy bez',
      letters: 'łąęśżźćń',
    },
    cs: {
      words:
        'a se v na je že to s z do o i ale jako za by který jsou byl jsem podle nebo až také jeho pro co pak ' +
        'když už jen při jak které byla jsme může není být mezi velmi po',
      letters: 'ěřů',
    },
    sk: {
      words:
        'a sa v na je že to s z do o aj ale ako za by ktorý sú bol som podľa alebo až tiež jeho pre čo potom ' +
        'keď už len pri ktoré bola sme môže nie byť medzi veľmi po',
      letters: 'ľĺŕôä',
    },
    sl: {
      words:
        'je in v na se da ne za so pa ki z s kot tudi bi po ali ko sem bil biti še lahko samo zelo ter če pri ' +
        'od do kaj kako smo ste njegov med',
      letters: 'čšž',
    },
    hr: {
      words:
        'je i u na se da ne za su od što kao o s iz ali koji bi po ili kada sam bio biti još može samo vrlo ' +
        'te ako pri do kako smo ste njegov između koja koje nije',
      letters: 'čćđšž',
    },
    ro: {
      words:
        'și de la în a cu nu o care un pe se este din că pentru mai au ce al sau dar fi sunt după cum ca prin ' +
        'fost lui ei foarte când dacă am ai acest această lor între fără toate poate',
      letters: 'ășțâî',
    },
    tr: {
      words:
        've bir bu için ile de da çok daha olarak gibi en kadar olan sonra ne var ama ya her o ben sen biz ' +
        'değil mi veya şey iki ise ancak göre kendi olduğu tüm',
      letters: 'ığş',
    },
    vi: {
      words:
        'và của là có không được cho một trong các với người này đã những khi để đến cũng về từ tôi như nhưng ' +
        'ra vào bạn sẽ rất nhiều phải hay thì còn nếu chúng ta làm trên năm',
      letters: 'đơưạảấầậắằặẹẻẽếềểệịọỏốồổộớờởợụủứừửựỳỷỹ',
    },
    id: {
      words:
        'yang dan di itu dengan untuk dari ini tidak adalah dalam akan pada juga ke karena bisa ada saya kamu ' +
        'kami kita mereka atau telah oleh sebagai lebih sangat dapat seperti anda menjadi tersebut',
    },
    tl: {
      words:
        'ang ng sa na mga at ay ito para hindi ko mo siya ako ka kung may isang niya namin natin kami tayo ' +
        'sila nila dahil pero lang din rin kanyang mula',
    },
    sw: {
      words:
        'na ya wa kwa ni katika za la kuwa hii hiyo huyo cha kama au yake wake lakini sana watu pia mimi wewe ' +
        'yeye sisi ili kutoka hivyo hata bila kila ndani hapa wao vya yetu yako yangu wangu wako moja mtu ' +
        'siku baada si',
    },
    so: {
      words:
        'waa iyo ka ku oo in uu ay ee aan ah soo la ugu kale badan markii waxaa inuu haa maya wax qof sida ' +
        'laakiin kuwa',
    },
    af: {
      words:
        'die en van het is nie in wat om te dat vir hy sy met op aan word ook maar kan baie sal deur was ek ' +
        'jy ons hulle as by na uit ʼn so nog meer',
    },
    ca: {
      words:
        'el la de que i els les un una per amb no és del al en es com més però seu va aquest aquesta són ha ' +
        'també o a molt quan perquè tot fer entre dels als sobre hi pot',
      letters: 'çòïŀ',
    },
    cy: {
      words:
        'y yn a i o ei ar mae am ac yr wedi gan oedd yw hyn bod fel ond eu fod nid ddim hefyd fy dy eich ein ' +
        'mewn rhwng',
      letters: 'ŵŷ',
    },
    lt: {
      words:
        'ir yra kad į su iš tai ne o kaip bet buvo jis ji per apie dėl ar nuo taip dar tik gali labai mes jūs ' +
        'jų savo po prie būti',
      letters: 'ėįųž',
    },
    lv: {
      words:
        'un ir ka no ar uz tas par bet kā nav arī bija viņš viņa pēc vai tiek lai tikai ļoti mēs jūs savu pie ' +
        'būt šo',
      letters: 'āēīūļņķģ',
    },
    sq: {
      words:
        'e të në dhe një për me që është nuk nga si më ka por kjo ky do ishte janë kur ai ajo unë ti ne ju ' +
        'tij saj shumë',
      letters: 'ëç',
    },
  },
  Cyrillic: {
    ru: {
      words:
        'и в не на что с по это как он для из но все так его за у же от бы только было вы мы она они был мне ' +
        'меня если когда или чтобы быть есть очень может также этот я ты к о',
      letters: 'ыэё',
    },
    uk: {
      words:
        'і в не на що з по це як він для та але все так його за у ж від тільки було ви ми вона вони був мені ' +
        'мене якщо коли або щоб бути є дуже може також цей я ти до про',
      letters: 'іїєґ',
    },
    bg: {
      words:
        'и в не на че с по това като той за от но всички така му са у да само беше вие ние тя те бил ми ме ' +
        'ако когато или се е много може също този аз ти към си ще ли сте ви',
      letters: 'ъщ',
    },
    mk: {
      words:
        'и во не на дека со по тоа како тој за од но сите така му се да само беше вие ние таа тие бил ми ме ' +
        'ако кога или е многу може исто овој јас ти кон си ќе ли',
      letters: 'ѓќѕљњџј',
    },
  },
  Arabic: {
    ar: {
      words:
        'في من على إلى أن هذا هذه التي الذي عن مع لا ما كان كانت هو هي أو كما قد لم بعد قبل بين كل ذلك يمكن ' +
        'حيث أنا أنت نحن هم إذا لكن عند حتى ثم أي غير',
      letters: 'ةىأإ',
    },
    fa: {
      words:
        'و در به از که این را با است آن برای یک خود تا کرد بر هم نیز می شود شد ما او من شما آنها اما یا هر ' +
        'باید اگر بود دارد های ها همه چه بسیار کند',
      letters: 'پچژگ',
    },
    ur: {
      words:
        'کے کی میں اور ہے کا سے کو نے پر یہ ہیں کہ وہ بھی ایک اس ہو کر تھا نہیں جو تو لیے گیا ان ہم آپ میں ' +
        'اپنے کیا تھے ہوتا کرنے رہا',
      letters: 'ےںٹڈڑہھ',
    },
  },
  Devanagari: {
    hi: {
      words:
        'के है में की और का को से यह हैं पर ने कि एक भी इस था नहीं जो तो लिए हो कर वह आप हम मैं अपने या साथ ' +
        'गया किया जा सकते थे बहुत कुछ',
    },
    mr: {
      words:
        'आहे आणि च्या या आहेत होते ते ही हे एक नाही तर केली केले मी आपण तुम्ही तो ती झाले साठी होता असे ' +
        'आपल्या त्यांनी म्हणून परंतु किंवा करा आम्ही त्या काही',
      letters: 'ळ',
    },
    ne: {
      words:
        'छ र को मा हो यो लागि पनि छन् गर्न एक भने तर गरेको भएको हुन्छ म हामी तपाईं उनी त्यो थियो तपाईंको ' +
        'हाम्रो गर्नु धेरै सबै वा बाट लाई गर्ने हुन भयो',
    },
  },
};

// The language of a text, where the public harness asks langdetect. Most scripts belong to one language; within the
// others, frequent short words decide.

/** Scripts that a language has to itself. */
const ALONE: readonly (readonly [script: string, code: string])[] = [
  ['Hangul', 'ko'],
  ['Thai', 'th'],
  ['Kannada', 'kn'],
  ['Gurmukhi', 'pa'],
  ['Telugu', 'te'],
  ['Tamil', 'ta'],
  ['Gujarati', 'gu'],
  ['Bengali', 'bn'],
  ['Malayalam', 'ml'],
  ['Hebrew', 'he'],
  ['Greek', 'el'],
];
const JAPANESE = /\p{Script=Hiragana}|\p{Script=Katakana}/gu;
const HAN = /\p{Script=Han}/gu;
/** What is looked at of a longer text. */
const MAX_LETTERS = 20_000;
/** How much a letter that few languages use counts, in words. */
const LETTER_WEIGHT = 0.25;
/** Without any known word: English is the most likely. */
const DEFAULTS: Readonly<Record<Script, string>> = { Latin: 'en', Cyrillic: 'ru', Arabic: 'ar', Devanagari: 'hi' };

const count = (text: string, pattern: RegExp): number => text.match(pattern)?.length ?? 0;

interface Votes {
  readonly words: ReadonlyMap<string, readonly (readonly [code: string, weight: number])[]>;
  readonly letters: readonly (readonly [code: string, pattern: RegExp])[];
}

/** A word that several languages share counts less. */
function votesOf(script: Script): Votes {
  const languages = Object.entries(LANGUAGES[script]);
  const codes = new Map<string, string[]>();
  for (const [code, { words }] of languages)
    for (const word of new Set(words.split(' '))) codes.set(word, [...(codes.get(word) ?? []), code]);
  return {
    words: new Map([...codes].map(([word, all]) => [word, all.map((code) => [code, 1 / all.length] as const)])),
    letters: languages.flatMap(([code, { letters }]) =>
      letters === undefined ? [] : [[code, new RegExp(`[${letters}]`, 'gu')] as const],
    ),
  };
}

const known = new Map<Script, Votes>();

function within(script: Script, text: string): string {
  const votes = known.get(script) ?? votesOf(script);
  known.set(script, votes);
  const sums = new Map<string, number>();
  const add = (code: string, weight: number): unknown => sums.set(code, (sums.get(code) ?? 0) + weight);
  for (const word of text.match(/[\p{L}\p{M}]+/gu) ?? [])
    for (const [code, weight] of votes.words.get(word) ?? []) add(code, weight);
  for (const [code, pattern] of votes.letters) add(code, LETTER_WEIGHT * count(text, pattern));
  const [best] = [...sums].filter(([, sum]) => sum > 0).sort(([, a], [, b]) => b - a);
  return best?.[0] ?? DEFAULTS[script];
}

/** An ISO 639-1 code; Chinese is `zh-cn`. Undefined for a text without letters of a known script. */
export function languageOf(text: string): string | undefined {
  const lower = text.slice(0, MAX_LETTERS).toLowerCase().normalize('NFC');
  const scripts = Object.keys(LANGUAGES) as Script[];
  const of = (script: string): number => count(lower, new RegExp(`\\p{Script=${script}}`, 'gu'));
  const [kana, han] = [count(lower, JAPANESE), count(lower, HAN)];
  const found = [
    ...scripts.map((script) => ({ letters: of(script), code: () => within(script, lower) })),
    ...ALONE.map(([script, code]) => ({ letters: of(script), code: () => code })),
    { letters: kana + han, code: () => (kana * 20 >= kana + han ? 'ja' : 'zh-cn') },
  ];
  const most = Math.max(...found.map(({ letters }) => letters));
  return most === 0 ? undefined : found.find(({ letters }) => letters === most)!.code();
}
